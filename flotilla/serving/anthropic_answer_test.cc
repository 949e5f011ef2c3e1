#include "flotilla/serving/anthropic_answer.h"

#include "flotilla/serving/testing.h"

namespace flotilla::serving {
namespace {

using namespace std::chrono_literals;
using boost::json::value;

class Messages : public SurfaceTest {
 protected:
  std::shared_ptr<FakeExchange> message(const std::string& members = {},
                                        const std::string& path = "/v1/messages") {
    return request(
        "POST", path,
        R"({"model":"org/tiny","max_tokens":50,"messages":[{"role":"user","content":"hi"}])" +
            (members.empty() ? "" : "," + members) + "}");
  }
};

const std::string kStream = R"("stream":true)";
const std::string kTools =
    R"("tools":[{"name":"get_weather","input_schema":{"type":"object"}},{"name":"now","input_schema":{"type":"object"}}])";

ChatEvent reasoning(std::string text) {
  ChatEvent event = content(std::move(text));
  event.deltas[0].channel = ChatDelta::Channel::kReasoning;
  return event;
}

TEST_F(Messages, AWholeAnswer) {
  auto exchange = message();
  emit(content("Hel"));
  emit(content("lo"));
  emit(finish(ChatFinish::Reason::kStop,
              {.prompt_tokens = 9, .completion_tokens = 2, .cached_tokens = 4}));
  ASSERT_EQ(exchange->head.status, 200u) << exchange->body;
  const value body = body_json(*exchange);
  EXPECT_EQ(body.at("type"), "message");
  EXPECT_EQ(body.at("role"), "assistant");
  EXPECT_EQ(body.at("model"), "org/tiny");
  EXPECT_EQ(body.at("content"), json::parse(R"([{"type":"text","text":"Hello"}])").value());
  EXPECT_EQ(body.at("stop_reason"), "end_turn");
  EXPECT_EQ(body.at("stop_sequence"), nullptr);
  EXPECT_EQ(body.at("usage").at("input_tokens"), 5);
  EXPECT_EQ(body.at("usage").at("cache_read_input_tokens"), 4);
  EXPECT_EQ(body.at("usage").at("output_tokens"), 2);
  EXPECT_TRUE(std::string_view(body.at("id").as_string()).starts_with("msg_"));
  EXPECT_EQ(exchange->header("request-id"), exchange->header("x-request-id"));
}

TEST_F(Messages, StopReasonsSayWhatEndedTheAnswer) {
  auto stopped = message(R"("stop_sequences":["END"])");
  ChatEvent end = finish();
  end.finish->matched_stop = "END";
  emit(std::move(end));
  EXPECT_EQ(body_json(*stopped).at("stop_reason"), "stop_sequence");
  EXPECT_EQ(body_json(*stopped).at("stop_sequence"), "END");
  EXPECT_EQ(body_json(*stopped).at("content"), boost::json::array());
  auto cut = message();
  emit(content("a"), 1);
  emit(finish(ChatFinish::Reason::kLength), 1);
  EXPECT_EQ(body_json(*cut).at("stop_reason"), "max_tokens");
}

TEST_F(Messages, CallsHaveAnObjectAsInput) {
  auto exchange = message(kTools);
  emit(content("Let me look."));
  emit(call_piece(0, "get_weather", R"({"city":)", "call_1"));
  emit(call_piece(0, "", R"("Paris"})"));
  emit(call_piece(1, "now", "", "call_2"));
  emit(finish(ChatFinish::Reason::kToolCalls));
  const value body = body_json(*exchange);
  EXPECT_EQ(body.at("content"), json::parse(R"([{"type":"text","text":"Let me look."},
      {"type":"tool_use","id":"toolu_1","name":"get_weather","input":{"city":"Paris"}},
      {"type":"tool_use","id":"toolu_2","name":"now","input":{}}])")
                                    .value());
  EXPECT_EQ(body.at("stop_reason"), "tool_use");
  auto cut = message(kTools);
  emit(call_piece(0, "get_weather", R"({"city":"Par)", "call_1"), 1);
  emit(finish(ChatFinish::Reason::kLength), 1);
  EXPECT_EQ(body_json(*cut).at("content").at(0).at("input"), boost::json::object());
  EXPECT_EQ(body_json(*cut).at("stop_reason"), "max_tokens");
}

// B14: what clients build their state from.
TEST_F(Messages, AStreamOpensFillsAndClosesOneBlockAtATime) {
  auto exchange = message(kStream + "," + kTools);
  ChatEvent first = reasoning("hm ");
  first.prompt_tokens = 9;
  emit(std::move(first));
  emit(reasoning("hm"));
  emit(content("Let me "));
  emit(content("look."));
  emit(call_piece(0, "get_weather", R"({"city":)", "call_1"));
  emit(call_piece(0, "", R"("Paris"})"));
  emit(call_piece(1, "now", "", "call_2"));
  emit(finish(ChatFinish::Reason::kToolCalls,
              {.prompt_tokens = 9, .completion_tokens = 7, .cached_tokens = 4}));
  ASSERT_TRUE(exchange->ended);
  const auto events = named_events(exchange->body);
  std::string order;
  std::int64_t open = -1, next = 0;
  std::map<std::int64_t, std::string> text;
  for (const auto& [name, data] : events) {
    EXPECT_EQ(data.at("type"), value(name));
    if (name == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = data.at("index").as_int64();
      EXPECT_EQ(open, next++);
      order += std::string_view(data.at("content_block").at("type").as_string());
      order += ' ';
    } else if (name == "content_block_delta") {
      EXPECT_EQ(data.at("index"), open);
      const auto& delta = data.at("delta").as_object();
      for (const char* key : {"text", "thinking", "partial_json"}) {
        if (const auto* piece = delta.if_contains(key))
          text[open] += std::string_view(piece->as_string());
      }
      if (delta.at("type") == "signature_delta") {
        EXPECT_FALSE(delta.at("signature").as_string().empty());
      }
    } else if (name == "content_block_stop") {
      EXPECT_EQ(data.at("index"), open);
      open = -1;
    }
  }
  EXPECT_EQ(order, "thinking text tool_use tool_use ");
  EXPECT_EQ(text[0], "hm hm");
  EXPECT_EQ(text[1], "Let me look.");
  EXPECT_EQ(text[2], R"({"city":"Paris"})");
  EXPECT_EQ(text[3], "{}");
  const value& start = events.front().second.at("message");
  EXPECT_EQ(events.front().first, "message_start");
  EXPECT_EQ(start.at("content"), boost::json::array());
  EXPECT_EQ(start.at("stop_reason"), nullptr);
  EXPECT_EQ(start.at("usage").at("input_tokens"), 9);
  EXPECT_EQ(events.back().first, "message_stop");
  const value& end = events[events.size() - 2].second;
  EXPECT_EQ(end.at("type"), "message_delta");
  EXPECT_EQ(end.at("delta").at("stop_reason"), "tool_use");
  EXPECT_EQ(end.at("delta").at("stop_sequence"), nullptr);
  EXPECT_EQ(end.at("usage").at("output_tokens"), 7);
  EXPECT_EQ(end.at("usage").at("input_tokens"), 5);
}

TEST_F(Messages, AnEmptyStreamIsStillAMessage) {
  auto exchange = message(kStream);
  emit(finish());
  const auto events = named_events(exchange->body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].first, "message_start");
  EXPECT_EQ(events[1].second.at("delta").at("stop_reason"), "end_turn");
}

TEST_F(Messages, SilenceIsFilledWithPings) {
  auto exchange = message(kStream);
  loop.advance(10'000ms);
  EXPECT_EQ(exchange->body, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  emit(content("a"));
  emit(finish());
  EXPECT_EQ(named_events(exchange->body)[1].first, "message_start");
}

TEST_F(Messages, ErrorsHaveAnthropicsShape) {
  auto early = message(kStream);
  emit(failure({ErrorCode::kUnavailable, "not now"}));
  EXPECT_EQ(early->head.status, 529u);
  EXPECT_EQ(early->header("retry-after"), "2");
  EXPECT_EQ(body_json(*early).at("type"), "error");
  EXPECT_EQ(body_json(*early).at("error").at("type"), "overloaded_error");
  EXPECT_EQ(std::string_view(body_json(*early).at("request_id").as_string()),
            early->header("request-id"));
  auto late = message(kStream);
  emit(content("half"), 1);
  emit(failure({ErrorCode::kInternal, "boom"}), 1);
  const auto events = named_events(late->body);
  EXPECT_EQ(events.back().first, "error");
  EXPECT_EQ(events.back().second.at("error").at("type"), "api_error");
  EXPECT_EQ(late->body.find("message_stop"), std::string::npos);
  auto wrong = request("POST", "/v1/messages", "{}");
  EXPECT_EQ(wrong->head.status, 400u);
  EXPECT_EQ(body_json(*wrong).at("error").at("type"), "invalid_request_error");
  EXPECT_NE(std::string(body_json(*wrong).at("error").at("message").as_string()).find("model"),
            std::string::npos);
  EXPECT_EQ(body_json(*request("GET", "/v1/messages")).at("type"), "error");
}

TEST_F(Messages, WhoeverSpeaksAnthropicIsAnsweredSo) {
  auto nothing = request("GET", "/v1/messages/batches");
  EXPECT_EQ(nothing->head.status, 404u);
  EXPECT_EQ(body_json(*nothing).at("error").at("type"), "not_found_error");
  auto model = request("GET", "/v1/models/none", {}, {{"anthropic-version", "2023-06-01"}});
  EXPECT_EQ(body_json(*model).at("type"), "error");
  EXPECT_EQ(body_json(*request("GET", "/v1/models/none")).at("error").at("code"),
            "model_not_found");
}

TEST_F(Messages, KeysAreRefusedInAnthropicsShape) {
  backend.key = "k";
  auto none = message();
  EXPECT_EQ(none->head.status, 401u);
  EXPECT_EQ(body_json(*none).at("error").at("type"), "authentication_error");
  for (const auto& [name, key] :
       {std::pair("x-api-key", "k"), std::pair("authorization", "Bearer k")}) {
    auto exchange = request("POST", "/v1/messages", "{}", {{name, key}});
    EXPECT_EQ(exchange->head.status, 400u) << name;
  }
}

TEST_F(Messages, TokensAreCountedWithoutGenerating) {
  auto exchange = message({}, "/v1/messages/count_tokens");
  EXPECT_TRUE(call().request.count_only);
  emit(finish(ChatFinish::Reason::kLength, {.prompt_tokens = 9}));
  EXPECT_EQ(exchange->body, R"({"input_tokens":9})");
}

}  // namespace
}  // namespace flotilla::serving
