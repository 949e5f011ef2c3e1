#include "flotilla/serving/responses_answer.h"

#include "flotilla/serving/testing.h"

namespace flotilla::serving {
namespace {

using boost::json::value;

class Responses : public SurfaceTest {
 protected:
  std::shared_ptr<FakeExchange> respond(const std::string& members = {}) {
    return request(
        "POST", "/v1/responses",
        R"({"model":"org/tiny","input":"ping")" + (members.empty() ? "" : "," + members) + "}");
  }
};

const std::string kStream = R"("stream":true)";
const std::string kTools = R"("tools":[{"type":"function","name":"f","parameters":{}}])";

std::string type_of(const value& item) { return std::string(item.at("type").as_string()); }

TEST_F(Responses, AWholeAnswer) {
  auto exchange = respond(R"("temperature":0.5,"instructions":"be brief")");
  emit(content("po"));
  emit(content("ng"));
  emit(finish(
      ChatFinish::Reason::kStop,
      {.prompt_tokens = 9, .completion_tokens = 2, .cached_tokens = 4, .reasoning_tokens = 1}));
  ASSERT_EQ(exchange->head.status, 200u) << exchange->body;
  const value body = body_json(*exchange);
  EXPECT_EQ(body.at("object"), "response");
  EXPECT_EQ(body.at("status"), "completed");
  EXPECT_EQ(body.at("error"), nullptr);
  EXPECT_EQ(body.at("incomplete_details"), nullptr);
  EXPECT_EQ(body.at("instructions"), "be brief");
  EXPECT_EQ(body.at("store"), false);
  const value& item = body.at("output").at(0);
  EXPECT_EQ(item.at("type"), "message");
  EXPECT_EQ(item.at("status"), "completed");
  EXPECT_EQ(item.at("content").at(0),
            json::parse(R"({"type":"output_text","text":"pong","annotations":[],"logprobs":[]})")
                .value());
  EXPECT_EQ(body.at("usage"),
            json::parse(
                R"({"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":2,
          "output_tokens_details":{"reasoning_tokens":1},"total_tokens":11})")
                .value());
}

TEST_F(Responses, ACutAnswerIsIncomplete) {
  auto exchange = respond(kTools);
  emit(call_piece(0, "f", R"({"a":)", "call_1"));
  emit(finish(ChatFinish::Reason::kLength));
  const value body = body_json(*exchange);
  EXPECT_EQ(body.at("status"), "incomplete");
  EXPECT_EQ(body.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(body.at("output").at(0).at("status"), "incomplete");
  EXPECT_EQ(body.at("output").at(0).at("arguments"), R"({"a":)");
}

// B12: the order that clients wait for.
TEST_F(Responses, AStreamHasEveryEventInOrder) {
  auto exchange = respond(kStream);
  emit(content("po"));
  emit(content("ng"));
  emit(finish());
  const auto events = named_events(exchange->body);
  const std::vector<std::string> expected = {
      "response.created",           "response.in_progress",
      "response.output_item.added", "response.content_part.added",
      "response.output_text.delta", "response.output_text.delta",
      "response.output_text.done",  "response.content_part.done",
      "response.output_item.done",  "response.completed"};
  ASSERT_EQ(events.size(), expected.size());
  const value& id = events[2].second.at("item").at("id");
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].first, expected[i]);
    EXPECT_EQ(events[i].second.at("type"), value(expected[i]));
    EXPECT_EQ(events[i].second.at("sequence_number"), i);
    if (const value* item = events[i].second.as_object().if_contains("item_id")) {
      EXPECT_EQ(*item, id);
    }
  }
  EXPECT_EQ(events[0].second.at("response").at("status"), "in_progress");
  EXPECT_EQ(events[0].second.at("response").at("usage"), nullptr);
  EXPECT_EQ(events[6].second.at("text"), "pong");
  const value& last = events.back().second.at("response");
  EXPECT_EQ(last.at("status"), "completed");
  EXPECT_EQ(last.at("id"), events[0].second.at("response").at("id"));
  EXPECT_EQ(last.at("output").at(0).at("content").at(0).at("text"), "pong");
  EXPECT_EQ(last.at("output").at(0).at("id"), id);
  EXPECT_EQ(last.at("usage").at("output_tokens_details").at("reasoning_tokens"), 0);
  EXPECT_EQ(exchange->body.find("[DONE]"), std::string::npos);
}

TEST_F(Responses, ThoughtsTextAndCallsAreItems) {
  auto exchange = respond(kStream + "," + kTools);
  ChatEvent thought = content("hm");
  thought.deltas[0].channel = ChatDelta::Channel::kReasoning;
  emit(std::move(thought));
  emit(call_piece(0, "f", "", "call_1"));
  emit(finish(ChatFinish::Reason::kToolCalls));
  const auto events = named_events(exchange->body);
  std::vector<std::string> names;
  for (const auto& [name, data] : events) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "response.created", "response.in_progress", "response.output_item.added",
                "response.content_part.added", "response.reasoning_text.delta",
                "response.reasoning_text.done", "response.content_part.done",
                "response.output_item.done", "response.output_item.added",
                "response.function_call_arguments.delta", "response.function_call_arguments.done",
                "response.output_item.done", "response.completed"}));
  const value& output = events.back().second.at("response").at("output");
  EXPECT_EQ(type_of(output.at(0)), "reasoning");
  EXPECT_EQ(output.at(0).at("content").at(0).at("text"), "hm");
  EXPECT_EQ(type_of(output.at(1)), "function_call");
  EXPECT_EQ(output.at(1).at("arguments"), "{}");
  EXPECT_EQ(output.at(1).at("call_id"), "call_1");
  EXPECT_NE(output.at(1).at("id"), output.at(1).at("call_id"));
  EXPECT_EQ(events[8].second.at("output_index"), 1);
  EXPECT_EQ(events[9].second.at("item_id"), output.at(1).at("id"));
}

TEST_F(Responses, LogprobsStayWithTheirText) {
  auto exchange =
      respond(kStream + R"(,"include":["message.output_text.logprobs"],"top_logprobs":1)");
  ChatEvent thought = content("hm", {1});
  thought.deltas[0].channel = ChatDelta::Channel::kReasoning;
  thought.logprobs = {{1, -0.1, "hm"}};
  emit(std::move(thought));
  ChatEvent held = content("", {2});
  held.logprobs = {{2, -0.2, "\xF0\x9F"}};
  emit(std::move(held));
  ChatEvent text = content("😀", {3});
  text.logprobs = {{3, -0.3, "\x98\x80", {{3, -0.3, "\x98\x80"}}}};
  emit(std::move(text));
  emit(finish());
  const auto events = named_events(exchange->body);
  const value& part = events.back().second.at("response").at("output").at(1).at("content").at(0);
  ASSERT_EQ(part.at("logprobs").as_array().size(), 2u);
  EXPECT_EQ(part.at("logprobs").at(0).at("bytes"), boost::json::array({0xF0, 0x9F}));
  EXPECT_EQ(part.at("logprobs").at(1).at("top_logprobs").as_array().size(), 1u);
}

TEST_F(Responses, AFailureIsAnErrorEventAndAFailedResponse) {
  auto exchange = respond(kStream);
  emit(content("half"));
  emit(failure({ErrorCode::kUnavailable, "the node is gone"}));
  const auto events = named_events(exchange->body);
  const value& error = events[events.size() - 2].second;
  EXPECT_EQ(error.at("type"), "error");
  EXPECT_EQ(error.at("code"), "unavailable");
  EXPECT_EQ(error.at("message"), "the node is gone");
  EXPECT_EQ(error.at("param"), nullptr);
  EXPECT_EQ(events.back().first, "response.failed");
  EXPECT_EQ(events.back().second.at("sequence_number"), events.size() - 1);
  EXPECT_EQ(events.back().second.at("response").at("status"), "failed");
  EXPECT_EQ(events.back().second.at("response").at("error").at("code"), "unavailable");
  EXPECT_EQ(events.back().second.at("response").at("output").at(0).at("status"), "incomplete");
  EXPECT_TRUE(exchange->ended);
  auto early = respond(kStream);
  emit(failure({ErrorCode::kUnavailable, "not now"}), 1);
  EXPECT_EQ(early->head.status, 503u);
}

}  // namespace
}  // namespace flotilla::serving
