#include "flotilla/api/responses_request.h"

#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

Result<ResponsesRequest> parse_body(const std::string& members) {
  return parse_responses_request(parse_text(R"({"model":"m",)" + members + "}"));
}
Result<ResponsesRequest> parse(const std::string& members) {
  return parse_body(R"("input":"hi")" + (members.empty() ? "" : "," + members));
}

void expect_messages(const std::string& members, const std::string& messages) {
  const auto request = parse_body(members);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->job.messages, parse_text(messages))
      << boost::json::serialize(request->job.messages);
}

TEST(ResponsesRequest, ATextIsAUserMessageAndInstructionsTheSystemOne) {
  expect_messages(R"("input":"hi","instructions":"be brief")",
                  R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])");
}

// B13: a replayed turn, with what real clients leave out.
TEST(ResponsesRequest, TakesReplayedItemsAsClientsSendThem) {
  const std::string body =
      R"("input":[{"role":"user","content":"one"},{"type":"reasoning","summary":[],"content":null},
         {"type":"message","role":"assistant","content":[{"type":"output_text","text":"two"}]},
         {"role":"user","content":[{"type":"input_text","text":"three"}]}],
         "tools":[{"type":"web_search"},{"type":"function","name":"f","parameters":{}}])";
  expect_messages(body, R"([{"role":"user","content":"one"},{"role":"assistant","content":"two"},
                            {"role":"user","content":"three"}])");
  const auto request = parse_body(body);
  ASSERT_EQ(request->job.tools.as_array().size(), 1u);
  EXPECT_EQ(request->job.tools.at(0).at("function").at("name"), "f");
  EXPECT_EQ(request->job.tool_choice, "auto");
}

TEST(ResponsesRequest, ReasoningTextAndCallsAreOneTurn) {
  expect_messages(
      R"("input":[{"role":"developer","content":"dev"},{"role":"user","content":"a"},
         {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],
          "content":[{"type":"reasoning_text","text":"long"}]},
         {"type":"message","role":"assistant","content":[{"type":"output_text","text":"look"}]},
         {"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{\"k\":1}"},
         {"type":"function_call","call_id":"call_2","name":"g","arguments":""},
         {"type":"function_call_output","call_id":"call_1","output":"42"},
         {"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"43"}]}])",
      R"([{"role":"system","content":"dev"},{"role":"user","content":"a"},
          {"role":"assistant","content":"look","reasoning_content":"long","tool_calls":[
            {"id":"call_1","type":"function","function":{"name":"f","arguments":{"k":1}}},
            {"id":"call_2","type":"function","function":{"name":"g","arguments":{}}}]},
          {"role":"tool","content":"42","tool_call_id":"call_1"},
          {"role":"tool","content":"43","tool_call_id":"call_2"}])");
  expect_messages(
      R"("input":[{"role":"user","content":"a"},
         {"type":"reasoning","summary":[{"type":"summary_text","text":"short"}]},
         {"type":"function_call","call_id":"c","name":"f","arguments":"not json"},
         {"type":"function_call_output","call_id":"c","output":"x"}])",
      R"([{"role":"user","content":"a"},
          {"role":"assistant","content":null,"reasoning_content":"short","tool_calls":[
            {"id":"c","type":"function","function":{"name":"f","arguments":"not json"}}]},
          {"role":"tool","content":"x","tool_call_id":"c"}])");
}

TEST(ResponsesRequest, SettingsOfTheJob) {
  const auto request = parse(
      R"("max_output_tokens":7,"temperature":0.5,"top_p":0.9,"stream":true,
         "stream_options":{"include_obfuscation":false},"include":["message.output_text.logprobs","reasoning.encrypted_content"],
         "top_logprobs":3,"reasoning":{"effort":"low","summary":"auto"},"parallel_tool_calls":false,
         "text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object"}},"verbosity":"low"})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  const ChatRequest& job = request->job;
  EXPECT_EQ(job.max_tokens, 7);
  EXPECT_EQ(job.temperature, 0.5);
  EXPECT_TRUE(job.stream);
  EXPECT_TRUE(job.logprobs);
  EXPECT_EQ(job.top_logprobs, 3);
  EXPECT_FALSE(job.parallel_tool_calls);
  EXPECT_EQ(job.template_variables.at("reasoning_effort"), "low");
  EXPECT_EQ(job.output_format.at("param"), "text.format.schema");
}

TEST(ResponsesRequest, ToolsAreFlat) {
  const std::string tools =
      R"("tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"function","name":"g","parameters":null}])";
  auto request = parse(tools);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(
      request->job.tools,
      parse_text(
          R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},
          {"type":"function","function":{"name":"g"}}])"));
  EXPECT_EQ(request->job.strict_tools, (std::vector<std::string>{"f"}));
  EXPECT_EQ(parse(tools + R"(,"tool_choice":"required")")->job.tool_choice, "required");
  EXPECT_EQ(
      parse(tools + R"(,"tool_choice":{"type":"function","name":"g"})")->job.tool_choice_function,
      "g");
  request = parse(
      tools +
      R"(,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]})");
  ASSERT_EQ(request->job.tools.as_array().size(), 1u);
  EXPECT_TRUE(request->job.strict_tools.empty());
}

TEST(ResponsesRequest, TheAnswerRepeatsTheSettings) {
  const auto request = parse(R"("temperature":0.5,"metadata":{"a":"b"},"tools":[])");
  const auto settings = parse_text("{" + request->settings + "}");
  EXPECT_EQ(settings.at("temperature").to_number<double>(), 0.5);
  EXPECT_EQ(settings.at("metadata").at("a"), "b");
  EXPECT_EQ(settings.at("store"), false);
  EXPECT_EQ(settings.at("previous_response_id"), nullptr);
  EXPECT_EQ(settings.at("tool_choice"), "auto");
  EXPECT_EQ(settings.at("top_p"), nullptr);
}

struct Refusal {
  const char *members, *param;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

TEST(ResponsesRequest, RefusesByName) {
  for (const Refusal& r :
       {Refusal{R"("input":7)", "input"}, Refusal{R"("input":[])", "input"},
        Refusal{R"("user":"u")", "input"}, Refusal{R"("input":[7])", "input[0]"},
        Refusal{R"("input":[{"content":"a"}])", "input[0].type"},
        Refusal{R"("input":[{"role":"tool","content":"a"}])", "input[0].role"},
        Refusal{R"("input":[{"role":"user"}])", "input[0].content"},
        Refusal{R"("input":[{"role":"user","content":[{"type":"input_image"}]}])",
                "input[0].content[0].type", ErrorCode::kUnsupported},
        Refusal{R"("input":[{"role":"user","content":[{"type":"x"}]}])",
                "input[0].content[0].type"},
        Refusal{R"("input":[{"type":"function_call","name":"f"}])", "input[0].call_id"},
        Refusal{R"("input":[{"type":"function_call","call_id":"c"}])", "input[0].name"},
        Refusal{R"("input":[{"type":"function_call_output","output":"x"}])", "input[0].call_id"},
        Refusal{R"("input":[{"type":"item_reference","id":"msg_1"}])", "input[0].type",
                ErrorCode::kUnsupported},
        Refusal{R"("input":[{"type":"computer_call"}])", "input[0].type", ErrorCode::kUnsupported},
        Refusal{R"("input":[{"type":"reasoning","summary":[]}])", "input"}}) {
    const auto request = parse_body(r.members);
    ASSERT_FALSE(request.ok()) << r.members;
    EXPECT_EQ(request.error().param, r.param) << r.members;
    EXPECT_EQ(request.error().code, r.code) << r.members;
  }
  for (const Refusal& r :
       {Refusal{R"("previous_response_id":"resp_1")", "previous_response_id",
                ErrorCode::kUnsupported},
        Refusal{R"("conversation":"c")", "conversation", ErrorCode::kUnsupported},
        Refusal{R"("store":true)", "store", ErrorCode::kUnsupported},
        Refusal{R"("background":true)", "background", ErrorCode::kUnsupported},
        Refusal{R"("prompt":{"id":"p"})", "prompt", ErrorCode::kUnsupported},
        Refusal{R"("max_output_tokens":0)", "max_output_tokens"},
        Refusal{R"("temperature":3)", "temperature"},
        Refusal{R"("text":"x")", "text"},
        Refusal{R"("text":{"format":{"type":"yaml"}})", "text.format.type"},
        Refusal{R"("text":{"format":{"type":"json_schema"}})", "text.format.schema"},
        Refusal{R"("reasoning":{"effort":"banana"})", "reasoning.effort"},
        Refusal{R"("include":"x")", "include"},
        Refusal{R"("truncation":"some")", "truncation"},
        Refusal{R"("stream_options":{})", "stream_options"},
        Refusal{R"("metadata":"x")", "metadata"},
        Refusal{R"("tools":[{}])", "tools[0].type"},
        Refusal{R"("tools":[{"type":"function"}])", "tools[0].name"},
        Refusal{R"("tool_choice":"required")", "tool_choice"},
        Refusal{R"("tool_choice":{"type":"web_search"})", "tool_choice.type",
                ErrorCode::kUnsupported},
        Refusal{R"("tool_choice":{"type":"function","name":"f"})", "tool_choice.name"}}) {
    const auto request = parse(r.members);
    ASSERT_FALSE(request.ok()) << r.members;
    EXPECT_EQ(request.error().param, r.param) << r.members;
    EXPECT_EQ(request.error().code, r.code) << r.members;
  }
}

}  // namespace
}  // namespace flotilla::api
