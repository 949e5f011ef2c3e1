#include "flotilla/api/chat_request.h"

#include "flotilla/api/limits.h"
#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

TEST(ChatRequest, FillsDefaultsOfTheSmallestBody) {
  const auto request = parse_with("");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->n, 1);
  EXPECT_FALSE(request->stream);
  EXPECT_FALSE(request->max_tokens.has_value());
  EXPECT_FALSE(request->temperature.has_value());
  EXPECT_FALSE(request->seed.has_value());
  EXPECT_EQ(request->tool_choice, "none");
  EXPECT_TRUE(request->tools.is_null());
}

TEST(ChatRequest, NullEqualsAbsentForEveryOptionalField) {
  const auto request = parse_with(
      R"("max_tokens":null,"max_completion_tokens":null,"temperature":null,"top_p":null,"top_k":null,"min_p":null,
         "n":null,"stream":null,"stream_options":null,"stop":null,"seed":null,"logit_bias":null,"logprobs":null,
         "top_logprobs":null,"response_format":null,"tools":null,"tool_choice":null,"parallel_tool_calls":null,
         "functions":null,"function_call":null,"reasoning_effort":null,"chat_template_kwargs":null,"audio":null,
         "modalities":null,"guided_json":null,"presence_penalty":null,"frequency_penalty":null,"user":null,
         "repetition_penalty":null,"stop_token_ids":null,"return_token_ids":null,"enable_thinking":null)");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(*request, *parse_with(""));
}

TEST(ChatRequest, IgnoresUnknownAndHarmlessFields) {
  const auto request = parse_with(
      R"("zz":{"a":[1]},"store":true,"metadata":{"k":"v"},"service_tier":"auto","user":"u","verbosity":"low",
         "prompt_cache_key":"k","safety_identifier":"s","prediction":{"type":"content","content":"x"},"priority":1)");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(*request, *parse_with(""));
}

TEST(ChatRequest, TheNewerNameOfTheTokenLimitWins) {
  EXPECT_EQ(parse_with(R"("max_completion_tokens":5)")->max_tokens, 5);
  EXPECT_EQ(parse_with(R"("max_tokens":5)")->max_tokens, 5);
  EXPECT_EQ(parse_with(R"("max_tokens":9,"max_completion_tokens":5)")->max_tokens, 5);
  EXPECT_EQ(parse_with(R"("max_tokens":5.0)")->max_tokens, 5);
}

struct Refusal {
  const char* members;
  const char* param;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

class Refuses : public testing::TestWithParam<Refusal> {};

TEST_P(Refuses, NamingTheField) {
  const auto request = parse_with(GetParam().members);
  ASSERT_FALSE(request.ok()) << GetParam().members;
  EXPECT_EQ(request.error().code, GetParam().code) << GetParam().members;
  EXPECT_EQ(request.error().param, GetParam().param) << GetParam().members;
  // The message names the field's first word too, for people who see only the message.
  const std::string param = GetParam().param;
  const std::string field = param.substr(0, param.find_first_of(".["));
  EXPECT_NE(request.error().message.find(field), std::string::npos) << request.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    OutOfRange, Refuses,
    testing::Values(
        Refusal{R"("repetition_penalty":0)", "repetition_penalty"},
        Refusal{R"("repetition_penalty":-1)", "repetition_penalty"},
        Refusal{R"("temperature":-1)", "temperature"},
        Refusal{R"("temperature":1e9)", "temperature"},
        Refusal{R"("temperature":"0.5")", "temperature"}, Refusal{R"("top_p":1.5)", "top_p"},
        Refusal{R"("top_p":-0.1)", "top_p"}, Refusal{R"("top_k":-5)", "top_k"},
        Refusal{R"("top_k":1.5)", "top_k"}, Refusal{R"("min_p":2)", "min_p"},
        Refusal{R"("n":0)", "n"}, Refusal{R"("n":17)", "n"},
        Refusal{R"("max_tokens":0)", "max_tokens"}, Refusal{R"("max_tokens":-1)", "max_tokens"},
        Refusal{R"("max_tokens":1e15)", "max_tokens"},
        Refusal{R"("max_completion_tokens":0)", "max_completion_tokens"},
        Refusal{R"("seed":9223372036854775808)", "seed"}, Refusal{R"("seed":1.5)", "seed"},
        Refusal{R"("stop":[""])", "stop[0]"}, Refusal{R"("stop":"")", "stop"},
        Refusal{R"("stop":["a",1])", "stop[1]"}, Refusal{R"("stop":7)", "stop"},
        Refusal{R"("presence_penalty":100)", "presence_penalty"},
        Refusal{R"("frequency_penalty":-2.1)", "frequency_penalty"},
        Refusal{R"("logit_bias":{"x":1})", "logit_bias"},
        Refusal{R"("logit_bias":{"-1":1})", "logit_bias"},
        Refusal{R"("logit_bias":{"1":101})", "logit_bias"},
        Refusal{R"("logit_bias":{"1":"1"})", "logit_bias"},
        Refusal{R"("logit_bias":{"7":1,"07":2})", "logit_bias"},
        Refusal{R"("logit_bias":[])", "logit_bias"},
        Refusal{R"("stop_token_ids":[-1])", "stop_token_ids"},
        Refusal{R"("stop_token_ids":7)", "stop_token_ids"},
        Refusal{R"("min_tokens":9,"max_tokens":5)", "min_tokens"},
        Refusal{R"("stream":"yes")", "stream"}, Refusal{R"("stream_options":{})", "stream_options"},
        Refusal{R"("stream":true,"stream_options":{"include_usage":1})",
                "stream_options.include_usage"},
        Refusal{R"("top_logprobs":3)", "top_logprobs"}, Refusal{R"("logprobs":3)", "logprobs"},
        Refusal{R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
        Refusal{R"("reasoning_effort":"banana")", "reasoning_effort"},
        Refusal{R"("response_format":"json")", "response_format"},
        Refusal{R"("response_format":{"type":"yaml"})", "response_format.type"},
        Refusal{R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
        Refusal{R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})",
                "response_format.json_schema.schema"},
        Refusal{R"("response_format":{"type":"json_schema","json_schema":{"schema":"{"}})",
                "response_format.json_schema.schema"},
        Refusal{R"("guided_json":1)", "guided_json"},
        Refusal{R"("guided_regex":"")", "guided_regex"},
        Refusal{R"("guided_choice":[])", "guided_choice"},
        Refusal{R"("guided_choice":["a",""])", "guided_choice"},
        Refusal{R"("guided_grammar":{})", "guided_grammar"},
        Refusal{R"("structured_outputs":[])", "structured_outputs"},
        Refusal{R"("structured_outputs":{"regex":"a","choice":["b"]})",
                "structured_outputs.choice"},
        Refusal{R"("response_format":{"type":"json_object"},"guided_regex":"a")", "guided_regex"},
        Refusal{R"("continue_final_message":true)", "continue_final_message"},
        Refusal{R"("continue_final_message":1)", "continue_final_message"},
        Refusal{R"("add_generation_prompt":"x")", "add_generation_prompt"},
        Refusal{R"("chat_template_kwargs":[])", "chat_template_kwargs"},
        Refusal{R"("chat_template_kwargs":{"a b":1})", "chat_template_kwargs"},
        Refusal{R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
        Refusal{R"("chat_template_kwargs":{"bos_token":"<s>"})", "chat_template_kwargs"}));

INSTANTIATE_TEST_SUITE_P(
    NotYet, Refuses,
    testing::Values(Refusal{R"("structured_outputs":{"structural_tag":{}})",
                            "structured_outputs.structural_tag", ErrorCode::kUnsupported},
                    Refusal{R"("typical_p":0.5)", "typical_p", ErrorCode::kUnsupported},
                    Refusal{R"("thinking_budget":100)", "thinking_budget", ErrorCode::kUnsupported},
                    Refusal{R"("echo":true)", "echo", ErrorCode::kUnsupported},
                    Refusal{R"("best_of":2)", "best_of", ErrorCode::kUnsupported},
                    Refusal{R"("modalities":["text","audio"])", "modalities",
                            ErrorCode::kUnsupported},
                    Refusal{R"("audio":{"voice":"alloy"})", "audio", ErrorCode::kUnsupported},
                    Refusal{R"("cache_salt":"x")", "cache_salt", ErrorCode::kUnsupported},
                    Refusal{R"("stream":true,"stream_options":{"continuous_usage_stats":true})",
                            "stream_options.continuous_usage_stats", ErrorCode::kUnsupported}));

TEST(ChatRequest, AllSpellingsOfAConstraintBecomeOneForm) {
  struct Spelling {
    const char *members, *form;
  };
  for (
      const Spelling& s : {
          Spelling{R"("response_format":{"type":"json_object"})",
                   R"({"kind":"json_object","value":null,"param":"response_format"})"},
          Spelling{
              R"("response_format":{"type":"json_object","schema":{"type":"null"}})",
              R"({"kind":"json_schema","value":{"type":"null"},"param":"response_format.schema"})"},
          Spelling{
              R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"a":1}}})",
              R"({"kind":"json_schema","value":{"a":1},"param":"response_format.json_schema.schema"})"},
          Spelling{R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})",
                   R"({"kind":"json_object","value":null,"param":"response_format.json_schema"})"},
          Spelling{R"("guided_json":"{\"type\":\"null\"}")",
                   R"({"kind":"json_schema","value":{"type":"null"},"param":"guided_json"})"},
          Spelling{R"("json_schema":true)",
                   R"({"kind":"json_schema","value":true,"param":"json_schema"})"},
          Spelling{R"("structured_outputs":{"regex":"a+"})",
                   R"({"kind":"regex","value":"a+","param":"structured_outputs.regex"})"},
          Spelling{R"("guided_choice":["a","b"],"response_format":{"type":"text"})",
                   R"({"kind":"choice","value":["a","b"],"param":"guided_choice"})"},
          Spelling{R"("grammar":"root ::= \"x\"")",
                   R"({"kind":"grammar","value":"root ::= \"x\"","param":"grammar"})"},
      }) {
    const auto request = parse_with(s.members);
    ASSERT_TRUE(request.ok()) << s.members << ": " << request.error().message;
    EXPECT_EQ(request->output_format, parse_text(s.form)) << s.members;
  }
  EXPECT_TRUE(parse_with(R"("response_format":null,"grammar":"")")->output_format.is_null());
}

TEST(ChatRequest, AcceptsTheNeutralValueOfUnsupportedFields) {
  EXPECT_TRUE(
      parse_with(R"("typical_p":1.0,"echo":false,"best_of":1,"modalities":["text"],"mirostat":0,
                            "skip_special_tokens":true,"response_format":{"type":"text"})")
          .ok());
}

TEST(ChatRequest, DocumentedMeaningsAtTheEdges) {
  EXPECT_EQ(parse_with(R"("top_k":-1)")->top_k, 0);
  EXPECT_EQ(parse_with(R"("top_k":0)")->top_k, 0);
  EXPECT_EQ(parse_with(R"("top_p":0)")->top_p, 0.0);
  EXPECT_EQ(parse_with(R"("temperature":1e-30)")->temperature, 1e-30);
  EXPECT_FALSE(parse_with(R"("seed":-1)")->seed.has_value());
  EXPECT_EQ(parse_with(R"("seed":0)")->seed, 0u);
  EXPECT_EQ(parse_with(R"("seed":9223372036854775807)")->seed, 9223372036854775807u);
  EXPECT_TRUE(parse_with(R"("logit_bias":{"999999999":1})")
                  .ok());  // the vocabulary is the engine's to know
}

TEST(ChatRequest, TakesOneStopOrSeveral) {
  EXPECT_EQ(parse_with(R"("stop":"END")")->stop, (std::vector<std::string>{"END"}));
  EXPECT_EQ(parse_with(R"("stop":["a","👩‍🚀"])")->stop,
            (std::vector<std::string>{"a", "👩‍🚀"}));
  EXPECT_TRUE(parse_with(R"("stop":[])")->stop.empty());
  std::string many = R"("stop":["s")";
  for (std::size_t i = 1; i < kMaxStops; ++i) many += R"(,"s")";
  EXPECT_TRUE(parse_with(many + "]").ok());
  EXPECT_EQ(parse_with(many + R"(,"s"])").error().param, "stop");
  EXPECT_EQ(parse_with(R"("stop":")" + std::string(kMaxStopBytes + 1, 'x') + "\"").error().param,
            "stop");
}

TEST(ChatRequest, SortsLogitBias) {
  const auto request = parse_with(R"("logit_bias":{"50":-100,"7":2.5})");
  EXPECT_EQ(request->logit_bias, (std::vector<std::pair<TokenId, double>>{{7, 2.5}, {50, -100}}));
}

TEST(ChatRequest, TheMoreParticularThinkingSwitchWins) {
  EXPECT_EQ(parse_with(R"("reasoning_effort":"none")")->template_variables.at("enable_thinking"),
            false);
  const auto high = parse_with(R"("reasoning_effort":"high")");
  EXPECT_EQ(high->template_variables.at("enable_thinking"), true);
  EXPECT_EQ(high->template_variables.at("reasoning_effort"), "high");
  EXPECT_EQ(parse_with(R"("reasoning_effort":"none","enable_thinking":true)")
                ->template_variables.at("enable_thinking"),
            true);
  EXPECT_EQ(parse_with(R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})")
                ->template_variables.at("enable_thinking"),
            false);
}

TEST(ChatRequest, ALastTurnOfTheAssistantCanBeContinued) {
  const std::string turns =
      R"({"model":"m","continue_final_message":true,"messages":[{"role":"user","content":"a"},)";
  const auto request =
      parse_chat_request(parse_text(turns + R"({"role":"assistant","content":"b"}]})"));
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_TRUE(request->continue_final_message);
  EXPECT_FALSE(request->add_generation_prompt);
  EXPECT_FALSE(parse_with(R"("add_generation_prompt":false)")->add_generation_prompt);
  for (const char* rest :
       {R"({"role":"assistant","content":"b"}],"add_generation_prompt":true})",
        R"({"role":"assistant","content":""}]})", R"({"role":"assistant","content":null}]})",
        R"({"role":"assistant","content":"b","tool_calls":[{"function":{"name":"f"}}]}]})",
        R"({"role":"assistant","content":"b"}],"response_format":{"type":"json_object"}})"}) {
    EXPECT_FALSE(parse_chat_request(parse_text(turns + rest)).ok()) << rest;
  }
}

TEST(ChatRequest, NeedsAModelAndAnObject) {
  EXPECT_EQ(parse_chat_request(parse_text("[]")).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(parse_chat_request(parse_text("7")).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(parse_chat_request(parse_text(R"({"messages":[{"role":"user","content":"x"}]})"))
                .error()
                .param,
            "model");
  EXPECT_EQ(parse_chat_request(parse_text(R"({"model":7,"messages":[]})")).error().param, "model");
  EXPECT_EQ(parse_chat_request(parse_text(R"({"model":"","messages":[]})")).error().param, "model");
}

TEST(ChatRequest, StreamOptionsAskForUsage) {
  EXPECT_TRUE(
      parse_with(R"("stream":true,"stream_options":{"include_usage":true})")->include_usage);
  EXPECT_FALSE(
      parse_with(R"("stream":true,"stream_options":{"include_obfuscation":false})")->include_usage);
}

}  // namespace
}  // namespace flotilla::api
