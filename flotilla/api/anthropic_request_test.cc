#include "flotilla/api/anthropic_request.h"

#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

Result<ChatRequest> parse_body(const std::string& text,
                               AnthropicCall call = AnthropicCall::kMessage) {
  return parse_anthropic_request(parse_text(text), call);
}

// One user message and further members.
Result<ChatRequest> parse(const std::string& members) {
  return parse_body(R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}])" +
                    (members.empty() ? "" : "," + members) + "}");
}

void expect_messages(const std::string& body, const std::string& messages) {
  const auto request = parse_body(R"({"model":"m","max_tokens":9,)" + body + "}");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->messages, parse_text(messages)) << boost::json::serialize(request->messages);
}

TEST(AnthropicRequest, TextTurnsAreMessages) {
  expect_messages(
      R"("system":"be brief","messages":[{"role":"user","content":"a"},
         {"role":"assistant","content":[{"type":"text","text":"b"}]},
         {"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}])",
      R"([{"role":"system","content":"be brief"},{"role":"user","content":"a"},
          {"role":"assistant","content":"b"},
          {"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}])");
  expect_messages(
      R"("system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"text","text":"y"}],
         "messages":[{"role":"user","content":"a"}])",
      R"([{"role":"system","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},
          {"role":"user","content":"a"}])");
}

TEST(AnthropicRequest, ClientsBookkeepingIsNoPartOfThePrompt) {
  expect_messages(
      R"("system":[{"type":"text","text":"x-anthropic-billing-header: v=1; h=abc;"},{"type":"text","text":"y"}],
         "messages":[{"role":"user","content":"x-anthropic-billing-header: said by a user"}])",
      R"([{"role":"system","content":"y"},
          {"role":"user","content":"x-anthropic-billing-header: said by a user"}])");
}

TEST(AnthropicRequest, NeighbouringTurnsOfOneRoleBecomeOne) {
  expect_messages(
      R"("messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},
         {"role":"assistant","content":"c"},{"role":"assistant","content":"d"},
         {"role":"user","content":"e"}])",
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
          {"role":"assistant","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]},
          {"role":"user","content":"e"}])");
}

TEST(AnthropicRequest, CallsAndResultsAndThoughts) {
  expect_messages(
      R"("messages":[{"role":"user","content":"a"},
         {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
           {"type":"redacted_thinking","data":"x"},{"type":"text","text":"look"},
           {"type":"tool_use","id":"toolu_1","name":"f","input":{"k":[1]}},
           {"type":"tool_use","id":"toolu_2","name":"g","input":{}}]},
         {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"42"},
           {"type":"tool_result","tool_use_id":"toolu_2","is_error":true,
            "content":[{"type":"text","text":"no"},{"type":"text","text":"pe"}]},
           {"type":"text","text":"go on"}]}])",
      R"([{"role":"user","content":"a"},
          {"role":"assistant","content":"look","reasoning_content":"hm","tool_calls":[
            {"id":"toolu_1","type":"function","function":{"name":"f","arguments":{"k":[1]}}},
            {"id":"toolu_2","type":"function","function":{"name":"g","arguments":{}}}]},
          {"role":"tool","content":"42","tool_call_id":"toolu_1"},
          {"role":"tool","content":"Error: nope","tool_call_id":"toolu_2"},
          {"role":"user","content":"go on"}])");
  expect_messages(
      R"("messages":[{"role":"user","content":"a"},
         {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
         {"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}])",
      R"([{"role":"user","content":"a"},
          {"role":"assistant","content":null,"tool_calls":[
            {"id":"t","type":"function","function":{"name":"f","arguments":{}}}]},
          {"role":"tool","content":"","tool_call_id":"t"}])");
}

TEST(AnthropicRequest, ALastTurnOfTheAssistantIsTheBeginningOfTheAnswer) {
  const std::string turns =
      R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"{"}])";
  const auto request = parse_body(turns + "}");
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request->continue_final_message);
  EXPECT_FALSE(request->add_generation_prompt);
  EXPECT_EQ(
      parse_body(turns + R"(,"thinking":{"type":"enabled","budget_tokens":2000}})").error().param,
      "messages");
  EXPECT_EQ(
      parse_body(turns + R"(,"output_format":{"type":"json_schema","schema":{}}})").error().code,
      ErrorCode::kUnsupported);
  EXPECT_FALSE(parse_body(
                   R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},
              {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]})")
                   .ok());
}

TEST(AnthropicRequest, ToolsHaveAnInputSchema) {
  const std::string tools =
      R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}},
                  {"name":"g","type":"custom","strict":true,"input_schema":{"type":"object"}}])";
  auto request = parse(tools);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(
      request->tools,
      parse_text(
          R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},
          {"type":"function","function":{"name":"g","parameters":{"type":"object"}}}])"));
  EXPECT_EQ(request->tool_choice, "auto");
  EXPECT_EQ(request->strict_tools, (std::vector<std::string>{"g"}));
  EXPECT_TRUE(request->parallel_tool_calls);
  EXPECT_EQ(parse(tools + R"(,"tool_choice":{"type":"any","disable_parallel_tool_use":true})")
                ->tool_choice,
            "required");
  request = parse(tools +
                  R"(,"tool_choice":{"type":"tool","name":"g","disable_parallel_tool_use":true})");
  EXPECT_EQ(request->tool_choice_function, "g");
  EXPECT_FALSE(request->parallel_tool_calls);
  EXPECT_TRUE(parse(tools + R"(,"tool_choice":{"type":"none"})")->tools.is_null());
}

TEST(AnthropicRequest, ThinkingAndEffort) {
  EXPECT_FALSE(parse("")->template_variables.contains("enable_thinking"));
  EXPECT_EQ(parse(R"("thinking":{"type":"enabled","budget_tokens":1024})")
                ->template_variables.at("enable_thinking"),
            true);
  EXPECT_EQ(parse(R"("thinking":{"type":"adaptive"})")->template_variables.at("enable_thinking"),
            true);
  EXPECT_EQ(parse(R"("thinking":{"type":"disabled"})")->template_variables.at("enable_thinking"),
            false);
  const auto effort = parse(R"("output_config":{"effort":"high"})");
  EXPECT_EQ(effort->template_variables.at("reasoning_effort"), "high");
  EXPECT_FALSE(effort->template_variables.contains("enable_thinking"));
}

TEST(AnthropicRequest, SamplingAndStopsAndFormats) {
  const auto request = parse(
      R"("temperature":0.5,"top_p":0.9,"top_k":4,"stop_sequences":["a","b"],"stream":true,
         "output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->temperature, 0.5);
  EXPECT_EQ(request->top_p, 0.9);
  EXPECT_EQ(request->top_k, 4);
  EXPECT_EQ(request->max_tokens, 9);
  EXPECT_EQ(request->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request->stream);
  EXPECT_EQ(request->output_format.at("kind"), "json_schema");
  EXPECT_EQ(request->output_format.at("param"), "output_config.format.schema");
}

TEST(AnthropicRequest, CountingNeedsNoLimitAndNeverStreams) {
  const auto request =
      parse_body(R"({"model":"m","stream":true,"messages":[{"role":"user","content":"a"}]})",
                 AnthropicCall::kCountTokens);
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request->count_only);
  EXPECT_FALSE(request->stream);
}

TEST(AnthropicRequest, IgnoresWhatChangesNothing) {
  const auto plain = parse("");
  const auto more = parse(
      R"("metadata":{"user_id":"u"},"service_tier":"auto","cache_control":{"type":"ephemeral"},
         "mcp_servers":[],"container":null,"betas":["x"],"unknown":{"a":1},
         "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})");
  ASSERT_TRUE(more.ok()) << more.error().message;
  EXPECT_EQ(*more, *plain);
}

struct Refusal {
  const char *members, *param;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

TEST(AnthropicRequest, RefusesByName) {
  EXPECT_EQ(parse_body(R"({"model":"m","messages":[{"role":"user","content":"a"}]})").error().param,
            "max_tokens");
  EXPECT_EQ(parse_body(R"({"model":"m","max_tokens":5})").error().param, "messages");
  EXPECT_EQ(parse_body(R"({"max_tokens":5})").error().param, "model");
  EXPECT_EQ(parse_body("[]").error().code, ErrorCode::kInvalidArgument);
  for (const Refusal& r :
       {Refusal{R"("temperature":1.5)", "temperature"},
        Refusal{R"("top_k":-1)", "top_k"},
        Refusal{R"("system":7)", "system"},
        Refusal{R"("system":[{"type":"image"}])", "system[0].type", ErrorCode::kUnsupported},
        Refusal{R"("stop_sequences":"a")", "stop_sequences"},
        Refusal{R"("stop_sequences":[""])", "stop_sequences[0]"},
        Refusal{R"("stream":1)", "stream"},
        Refusal{R"("thinking":true)", "thinking"},
        Refusal{R"("thinking":{"type":"maybe"})", "thinking.type"},
        Refusal{R"("thinking":{"type":"enabled"})", "thinking.budget_tokens"},
        Refusal{R"("tools":{})", "tools"},
        Refusal{R"("tools":[{"name":"f"}])", "tools[0].input_schema"},
        Refusal{R"("tools":[{"name":"a b","input_schema":{}}])", "tools[0].name"},
        Refusal{R"("tools":[{"type":"web_search_20250305","name":"web_search"}])", "tools[0].type",
                ErrorCode::kUnsupported},
        Refusal{R"("tool_choice":"auto")", "tool_choice"},
        Refusal{R"("tool_choice":{"type":"any"})", "tool_choice"},
        Refusal{R"("tool_choice":{"type":"tool","name":"f"})", "tool_choice.name"},
        Refusal{R"("tool_choice":{"type":"some"})", "tool_choice.type"},
        Refusal{R"("output_format":{"type":"text"})", "output_format.type"},
        Refusal{R"("output_config":{"effort":"none"})", "output_config.effort"},
        Refusal{R"("output_config":{"format":{"type":"json_schema"}})",
                "output_config.format.schema"},
        Refusal{R"("container":"c")", "container", ErrorCode::kUnsupported},
        Refusal{R"("mcp_servers":[{}])", "mcp_servers", ErrorCode::kUnsupported},
        Refusal{R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]})",
                "context_management.edits[0]", ErrorCode::kUnsupported}}) {
    const auto request = parse(r.members);
    ASSERT_FALSE(request.ok()) << r.members;
    EXPECT_EQ(request.error().param, r.param) << r.members;
    EXPECT_EQ(request.error().code, r.code) << r.members;
  }
  for (
      const Refusal& r :
      {Refusal{R"({"role":"system","content":"a"})", "messages[0].role"},
       Refusal{R"({"role":"user"})", "messages[0].content"},
       Refusal{R"({"role":"user","content":7})", "messages[0].content"},
       Refusal{R"({"role":"user","content":[{"type":"image","source":{}}]})",
               "messages[0].content[0].type", ErrorCode::kUnsupported},
       Refusal{R"({"role":"user","content":[{"type":"tool_use","id":"a","name":"b"}]})",
               "messages[0].content[0].type"},
       Refusal{R"({"role":"user","content":[{"type":"tool_result"}]})",
               "messages[0].content[0].tool_use_id"},
       Refusal{R"({"role":"assistant","content":[{"type":"tool_use","name":"b"}]})",
               "messages[0].content[0].id"},
       Refusal{
           R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":"x"}]})",
           "messages[0].content[0].input"}}) {
    const auto request =
        parse_body(R"({"model":"m","max_tokens":9,"messages":[)" + std::string(r.members) + "]}");
    ASSERT_FALSE(request.ok()) << r.members;
    EXPECT_EQ(request.error().param, r.param) << r.members;
    EXPECT_EQ(request.error().code, r.code) << r.members;
  }
}

}  // namespace
}  // namespace flotilla::api
