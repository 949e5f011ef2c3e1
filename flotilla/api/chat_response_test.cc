#include "flotilla/api/chat_response.h"

#include <limits>

#include "flotilla/api/testing.h"

namespace flotilla::api {
namespace {

ResponseHead head() { return {.id = "chatcmpl-1", .model = "m", .created = 7}; }

boost::json::value frame(const std::string& text) {
  EXPECT_EQ(text.substr(0, 6), "data: ");
  EXPECT_EQ(text.substr(text.size() - 2), "\n\n");
  EXPECT_EQ(text.substr(0, text.size() - 2).find('\n'), std::string::npos);
  return parse_text(text.substr(6, text.size() - 8));
}

TEST(ChatResponse, HasEveryFieldOfTheSchema) {
  ChoiceOutput choice{.content = "hé\"llo", .reasoning = "", .finish_reason = FinishReason::kStop};
  const auto value = parse_text(render_response(
      head(), {&choice, 1},
      {.prompt_tokens = 3, .completion_tokens = 4, .cached_tokens = 2, .reasoning_tokens = 1}));
  EXPECT_EQ(value,
            parse_text(R"({"id":"chatcmpl-1","object":"chat.completion","created":7,"model":"m",
     "choices":[{"index":0,"message":{"role":"assistant","content":"hé\"llo","refusal":null},"logprobs":null,"finish_reason":"stop"}],
     "usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2},
              "completion_tokens_details":{"reasoning_tokens":1}}})"));
}

TEST(ChatResponse, ContentIsNullWhenThereAreOnlyCalls) {
  ChoiceOutput choice{.tool_calls = {{"call_1", "now", ""}, {"call_2", "f", R"({"a":1})"}},
                      .finish_reason = FinishReason::kToolCalls};
  const auto value = parse_text(render_response(head(), {&choice, 1}, {}));
  EXPECT_EQ(value.at("choices").at(0).at("message"),
            parse_text(R"({"role":"assistant","content":null,"refusal":null,
     "tool_calls":[{"id":"call_1","type":"function","function":{"name":"now","arguments":"{}"}},
                   {"id":"call_2","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]})"));
  choice.content = "Let me look";
  EXPECT_EQ(parse_text(render_response(head(), {&choice, 1}, {}))
                .at("choices")
                .at(0)
                .at("message")
                .at("content"),
            "Let me look");
}

TEST(ChatResponse, AnEmptyAnswerIsAnEmptyStringAndHasNoToolCalls) {
  ChoiceOutput choice;
  const auto message =
      parse_text(render_response(head(), {&choice, 1}, {})).at("choices").at(0).at("message");
  EXPECT_EQ(message.at("content"), "");
  EXPECT_FALSE(message.as_object().contains("tool_calls"));
  EXPECT_FALSE(message.as_object().contains("reasoning_content"));
}

TEST(ChatResponse, LogprobsCarryExactBytesAndAFloor) {
  ResponseHead h = head();
  h.logprobs = true;
  const double inf = std::numeric_limits<double>::infinity();
  ChoiceOutput choice;
  choice.logprobs = {{1,
                      -0.5,
                      "\xF0\x9F",
                      {{1, -0.5, "\xF0\x9F", {}}, {2, -inf, "b", {}}, {3, std::nan(""), "c", {}}}},
                     {4, -1e300, "d", {}}};
  const auto content = parse_text(render_response(h, {&choice, 1}, {}))
                           .at("choices")
                           .at(0)
                           .at("logprobs")
                           .at("content");
  EXPECT_EQ(content.at(0).at("bytes"), parse_text("[240,159]"));
  EXPECT_EQ(content.at(0).at("logprob"), -0.5);
  EXPECT_EQ(content.at(0).at("top_logprobs").as_array().size(), 3u);
  EXPECT_EQ(content.at(0).at("top_logprobs").at(1).at("logprob").to_number<double>(), -9999.0);
  EXPECT_EQ(content.at(0).at("top_logprobs").at(2).at("logprob").to_number<double>(), -9999.0);
  EXPECT_EQ(content.at(1).at("logprob").to_number<double>(), -9999.0);
}

TEST(ChatResponse, TokenIdsComeOnlyWhenAskedFor) {
  ChoiceOutput choice{.content = "x", .token_ids = {5, 6}};
  EXPECT_FALSE(parse_text(render_response(head(), {&choice, 1}, {}))
                   .at("choices")
                   .at(0)
                   .as_object()
                   .contains("token_ids"));
  ResponseHead h = head();
  h.return_token_ids = true;
  EXPECT_EQ(parse_text(render_response(h, {&choice, 1}, {})).at("choices").at(0).at("token_ids"),
            parse_text("[5,6]"));
}

TEST(FinishReason, IsToolCallsIfAndOnlyIfThereAreSomeAndNothingWasCut) {
  EXPECT_EQ(to_string(finish_reason(false, true)), "tool_calls");
  EXPECT_EQ(to_string(finish_reason(false, false)), "stop");
  EXPECT_EQ(to_string(finish_reason(true, true)), "length");
  EXPECT_EQ(to_string(finish_reason(true, false)), "length");
}

TEST(ChunkWriter, WritesTheChunksOfText) {
  const ChunkWriter writer(head());
  std::string out;
  writer.append_role(out, 1);
  EXPECT_EQ(
      frame(out),
      parse_text(R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m",
     "choices":[{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"));
  out.clear();
  writer.append_content(out, 0, "a\nb", {});
  EXPECT_EQ(frame(out).at("choices").at(0).at("delta"), parse_text(R"({"content":"a\nb"})"));
  out.clear();
  writer.append_reasoning(out, 0, "hm", {});
  EXPECT_EQ(frame(out).at("choices").at(0).at("delta"),
            parse_text(R"({"reasoning_content":"hm"})"));
  out.clear();
  writer.append_finish(out, 2, FinishReason::kLength, {});
  EXPECT_EQ(frame(out).at("choices"),
            parse_text(R"([{"index":2,"delta":{},"logprobs":null,"finish_reason":"length"}])"));
}

TEST(ChunkWriter, OnlyTheFirstChunkOfACallHasIdTypeAndName) {
  const ChunkWriter writer(head());
  std::string out;
  writer.append_call_start(out, 0, 1, {"call_9", "f", ""}, {});
  EXPECT_EQ(
      frame(out).at("choices").at(0).at("delta"),
      parse_text(
          R"({"tool_calls":[{"index":1,"id":"call_9","type":"function","function":{"name":"f","arguments":""}}]})"));
  out.clear();
  writer.append_call_arguments(out, 0, 1, R"({"a)", {});
  EXPECT_EQ(frame(out).at("choices").at(0).at("delta"),
            parse_text(R"({"tool_calls":[{"index":1,"function":{"arguments":"{\"a"}}]})"));
}

TEST(ChunkWriter, UsageIsNullInEveryChunkButTheLastOne) {
  ResponseHead h = head();
  h.include_usage = true;
  const ChunkWriter writer(h);
  std::string out;
  writer.append_content(out, 0, "x", {});
  EXPECT_EQ(frame(out).at("usage"), nullptr);
  out.clear();
  writer.append_usage(out, {.prompt_tokens = 1, .completion_tokens = 2});
  EXPECT_EQ(frame(out).at("choices"), parse_text("[]"));
  EXPECT_EQ(frame(out).at("usage").at("total_tokens"), 3);
}

TEST(ChunkWriter, ExtrasRideOnAnyChunk) {
  ResponseHead h = head();
  h.logprobs = h.return_token_ids = true;
  const ChunkWriter writer(h);
  const std::vector<TokenLogprob> logprobs = {{5, -0.25, "x", {}}};
  const std::vector<std::int32_t> ids = {5};
  std::string out;
  writer.append_content(out, 0, "x", {logprobs, ids});
  EXPECT_EQ(frame(out).at("choices").at(0).at("token_ids"), parse_text("[5]"));
  EXPECT_EQ(frame(out).at("choices").at(0).at("logprobs").at("content").at(0).at("token"), "x");
}

TEST(ErrorFrame, IsOneDataLine) {
  EXPECT_EQ(frame(error_frame(Error{ErrorCode::kUnavailable, "gone\nnow"})).at("error").at("code"),
            "unavailable");
}

}  // namespace
}  // namespace flotilla::api
