#include "flotilla/serving/chat_stream.h"

#include "flotilla/serving/testing.h"

namespace flotilla::serving {
namespace {

using Calls = SurfaceTest;
const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather"}},{"type":"function","function":{"name":"now"}}])";

struct Rebuilt {
  std::string id, name, arguments;
};
// As a strict client rebuilds calls: id, type and name once and never null or empty, then arguments
// only.
std::vector<Rebuilt> rebuild(const std::string& body) {
  std::vector<Rebuilt> calls;
  for (const auto& frame : frames(body)) {
    if (!frame.is_object()) continue;
    for (const auto& choice : frame.at("choices").as_array()) {
      const auto* list = choice.at("delta").as_object().if_contains("tool_calls");
      if (list == nullptr) continue;
      for (const auto& piece : list->as_array()) {
        const auto index = static_cast<std::size_t>(piece.at("index").as_int64());
        const auto& function = piece.at("function").as_object();
        if (index == calls.size()) {
          EXPECT_EQ(piece.at("type"), "function");
          calls.push_back({std::string(std::string_view(piece.at("id").as_string())),
                           std::string(std::string_view(function.at("name").as_string())), ""});
          EXPECT_FALSE(calls.back().id.empty());
          EXPECT_FALSE(calls.back().name.empty());
        } else {
          EXPECT_EQ(index, calls.size() - 1);
          EXPECT_FALSE(piece.as_object().contains("id"));
          EXPECT_FALSE(piece.as_object().contains("type"));
          EXPECT_FALSE(function.contains("name"));
        }
        calls.at(index).arguments += std::string_view(function.at("arguments").as_string());
      }
    }
  }
  return calls;
}

std::string last_finish_reason(const std::string& body) {
  std::string reason;
  for (const auto& frame : frames(body)) {
    if (!frame.is_object()) continue;
    for (const auto& choice : frame.at("choices").as_array()) {
      if (choice.at("finish_reason").is_string())
        reason = std::string(std::string_view(choice.at("finish_reason").as_string()));
    }
  }
  return reason;
}

TEST_F(Calls, OneCallInPieces) {
  auto exchange = chat(kTools + R"(,"stream":true)");
  emit(call_piece(0, "get_weather", R"({"ci)", "call_abc"));
  emit(call_piece(0, "", R"(ty":")"));
  emit(call_piece(0, "", R"(Paris")"));
  emit(call_piece(0, "", "}"));
  emit(finish(ChatFinish::Reason::kToolCalls));
  const auto calls = rebuild(exchange->body);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].id, "call_abc");
  EXPECT_EQ(calls[0].name, "get_weather");
  EXPECT_EQ(calls[0].arguments, R"({"city":"Paris"})");
  EXPECT_EQ(last_finish_reason(exchange->body), "tool_calls");
}

TEST_F(Calls, WithoutArgumentsJoinToTheEmptyObject) {
  auto exchange = chat(kTools + R"(,"stream":true)");
  emit(call_piece(0, "now", ""));
  emit(call_piece(1, "get_weather", "{}"));
  emit(call_piece(2, "now", ""));
  emit(finish());
  const auto calls = rebuild(exchange->body);
  ASSERT_EQ(calls.size(), 3u);
  for (const auto& call : calls) EXPECT_EQ(call.arguments, "{}");
  EXPECT_NE(calls[0].id, calls[2].id);
}

TEST_F(Calls, WholeAnswersHaveTheSameCalls) {
  auto exchange = chat(kTools);
  emit(call_piece(0, "now", ""));
  emit(call_piece(1, "get_weather", R"({"city":)"));
  emit(call_piece(1, "", R"("Oslo"})"));
  emit(finish());
  const auto message = body_json(*exchange).at("choices").at(0).at("message");
  EXPECT_TRUE(message.at("content").is_null());
  EXPECT_EQ(message.at("tool_calls").at(0).at("function").at("arguments"), "{}");
  EXPECT_EQ(message.at("tool_calls").at(1).at("function").at("arguments"), R"({"city":"Oslo"})");
  EXPECT_EQ(body_json(*exchange).at("choices").at(0).at("finish_reason"), "tool_calls");
}

TEST_F(Calls, TheFinishReasonAgreesWithTheMessage) {
  using Reason = ChatFinish::Reason;
  struct Row {
    const char* arguments;  // of a call; null: there is none
    Reason reason;
    const char* expected;
  };
  for (const Row& row :
       {Row{"{}", Reason::kStop, "tool_calls"}, Row{"{}", Reason::kToolCalls, "tool_calls"},
        Row{"", Reason::kStop, "tool_calls"}, Row{nullptr, Reason::kToolCalls, "stop"},
        Row{nullptr, Reason::kStop, "stop"}, Row{"{", Reason::kLength, "length"},
        Row{nullptr, Reason::kLength, "length"},
        // A call that the model did not finish is none that anybody may run.
        Row{R"({"city":)", Reason::kStop, "stop"}, Row{R"({"a":"}\"})", Reason::kStop, "stop"},
        Row{R"({"a":[{"b":"{[\""}]})", Reason::kStop, "tool_calls"}}) {
    for (const bool stream : {false, true}) {
      backend.calls.clear();
      auto exchange = chat(kTools + (stream ? R"(,"stream":true)" : ""));
      emit(row.arguments != nullptr ? call_piece(0, "now", row.arguments) : content("prose"));
      emit(finish(row.reason));
      const std::string reason =
          stream ? last_finish_reason(exchange->body)
                 : std::string(std::string_view(
                       body_json(*exchange).at("choices").at(0).at("finish_reason").as_string()));
      EXPECT_EQ(reason, row.expected) << (row.arguments != nullptr ? row.arguments : "no call")
                                      << " " << static_cast<int>(row.reason) << " " << stream;
    }
  }
}

TEST_F(Calls, OnlyTheFirstOneWithoutParallelCalls) {
  for (const bool stream : {false, true}) {
    backend.calls.clear();
    auto exchange =
        chat(kTools + R"(,"parallel_tool_calls":false)" + (stream ? R"(,"stream":true)" : ""));
    emit(call_piece(0, "now", "{}"));
    emit(call_piece(1, "get_weather", R"({"a":)"));
    emit(call_piece(1, "", "1}"));
    emit(finish());
    if (stream) {
      EXPECT_EQ(rebuild(exchange->body).size(), 1u);
    } else {
      EXPECT_EQ(
          body_json(*exchange).at("choices").at(0).at("message").at("tool_calls").as_array().size(),
          1u);
    }
  }
}

TEST_F(Calls, OutOfOrderPiecesAreTheBackendsFault) {
  for (const auto& bad :
       {call_piece(0, "", "{}"), call_piece(1, "now", ""), call_piece(-1, "now", "")}) {
    backend.calls.clear();
    auto exchange = chat(kTools);
    emit(bad);
    EXPECT_EQ(exchange->head.status, 500u);
  }
}

TEST_F(Calls, ReasoningContentAndCallsKeepTheirOrder) {
  auto exchange = chat(kTools + R"(,"stream":true)");
  ChatEvent thought;
  thought.deltas.push_back(
      {.channel = ChatDelta::Channel::kReasoning, .text = "hm", .call_id = {}, .call_name = {}});
  emit(thought);
  emit(content("Let me look"));
  emit(call_piece(0, "now", "{}"));
  emit(finish());
  EXPECT_EQ(joined(exchange->body, "reasoning_content"), "hm");
  EXPECT_EQ(joined(exchange->body), "Let me look");
  EXPECT_LT(exchange->body.find("hm"), exchange->body.find("Let me look"));
  EXPECT_LT(exchange->body.find("Let me look"), exchange->body.find("\"now\""));
}

TEST_F(Calls, ReasoningHasItsOwnMemberInAWholeAnswer) {
  auto exchange = chat();
  ChatEvent thought;
  thought.deltas.push_back(
      {.channel = ChatDelta::Channel::kReasoning, .text = "hm", .call_id = {}, .call_name = {}});
  emit(thought);
  emit(content("yes"));
  emit(finish());
  const auto message = body_json(*exchange).at("choices").at(0).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "hm");
  EXPECT_EQ(message.at("content"), "yes");
}

TEST_F(Calls, EveryTokenOfAStreamKeepsItsLogprobAndId) {
  auto exchange = chat(R"("stream":true,"logprobs":true,"return_token_ids":true)");
  const auto token = [](std::int32_t id, std::string text) {
    ChatEvent event = content(text, {id});
    event.logprobs = {{id, -1.0, "t", {}}};
    return event;
  };
  emit(token(1, "a"));
  emit(token(2, ""));  // half a character: nothing to show yet
  emit(token(3, "é"));
  ChatEvent last = finish();
  last.ids = {4};
  last.logprobs = {{4, -1.0, "<eos>", {}}};
  emit(last);
  std::vector<std::int64_t> ids;
  std::size_t logprobs = 0;
  for (const auto& frame : frames(exchange->body)) {
    if (!frame.is_object()) continue;
    const auto& choice = frame.at("choices").at(0).as_object();
    if (const auto* list = choice.if_contains("token_ids")) {
      for (const auto& id : list->as_array()) ids.push_back(id.as_int64());
    }
    if (choice.at("logprobs").is_object())
      logprobs += choice.at("logprobs").at("content").as_array().size();
  }
  EXPECT_EQ(ids, (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(logprobs, 4u);
}

TEST_F(Calls, TextThatIsNoUtf8StillMakesJson) {
  auto exchange = chat(R"("stream":true)");
  emit(content("ok\xF0\x9F"));
  emit(finish());
  EXPECT_EQ(joined(exchange->body), "ok\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace flotilla::serving
