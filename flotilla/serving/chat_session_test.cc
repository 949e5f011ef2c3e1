#include "flotilla/serving/chat_session.h"

#include "flotilla/serving/testing.h"

namespace flotilla::serving {
namespace {

using namespace std::chrono_literals;
using Chat = SurfaceTest;
const std::string kStream = R"("stream":true)";

TEST_F(Chat, CollectsAWholeAnswer) {
  auto exchange = chat();
  emit(content("Hel"));
  emit(content("lo"));
  EXPECT_FALSE(exchange->complete());
  emit(finish(
      ChatFinish::Reason::kStop,
      {.prompt_tokens = 3, .completion_tokens = 2, .cached_tokens = 1, .reasoning_tokens = 0}));
  ASSERT_TRUE(exchange->sent);
  EXPECT_EQ(exchange->head.status, 200u);
  EXPECT_EQ(exchange->header("content-type"), "application/json");
  const auto body = body_json(*exchange);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "Hello");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("total_tokens"), 5);
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_TRUE(std::string_view(body.at("id").as_string()).starts_with("chatcmpl-"));
  EXPECT_FALSE(call().cancelled);
}

TEST_F(Chat, StreamsRoleThenContentThenFinishThenDone) {
  auto exchange = chat(kStream);
  EXPECT_FALSE(exchange->begun);
  emit(content("Hel"));
  EXPECT_TRUE(exchange->begun);
  emit(content("lo"));
  emit(finish());
  EXPECT_TRUE(exchange->ended);
  const auto all = frames(exchange->body);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_EQ(all[1].at("choices").at(0).at("delta").at("content"), "Hel");
  EXPECT_EQ(all[3].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(all[4], "[DONE]");
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all[i].at("id"), all[0].at("id"));
    EXPECT_EQ(all[i].at("choices").as_array().size(), 1u);
    EXPECT_FALSE(all[i].as_object().contains("usage"));
  }
}

TEST_F(Chat, AStreamSaysNotToBufferIt) {
  auto exchange = chat(kStream);
  emit(content("a"));
  EXPECT_EQ(exchange->header("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(exchange->header("cache-control"), "no-cache");
  EXPECT_EQ(exchange->header("x-accel-buffering"), "no");
  EXPECT_EQ(exchange->header("content-length"), "");
  EXPECT_NE(exchange->header("x-request-id"), "");
  emit(finish());
}

TEST_F(Chat, TheUsageChunkComesOnlyWhenAskedFor) {
  auto exchange = chat(R"("stream":true,"stream_options":{"include_usage":true})");
  emit(content("a"));
  emit(finish(ChatFinish::Reason::kStop, {.prompt_tokens = 3, .completion_tokens = 2}));
  const auto all = frames(exchange->body);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].at("usage"), nullptr);
  EXPECT_EQ(all[2].at("usage"), nullptr);
  EXPECT_EQ(all[3].at("choices"), boost::json::array());
  EXPECT_EQ(all[3].at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(all[4], "[DONE]");
}

TEST_F(Chat, NothingIsWrittenBeforeTheFirstContent) {
  auto exchange = chat(R"("stream":true,"return_token_ids":true)");
  ChatEvent silent;
  silent.ids = {7, 8};
  emit(silent);
  emit(content("", {9}));
  EXPECT_FALSE(exchange->begun);
  emit(content("x", {10}));
  const auto all = frames(exchange->body);
  ASSERT_EQ(all.size(), 2u);  // role, and the text with every id so far
  EXPECT_EQ(all[1].at("choices").at(0).at("token_ids"), (boost::json::array{7, 8, 9, 10}));
  emit(finish());
}

TEST_F(Chat, AnErrorBeforeTheFirstContentHasItsOwnStatus) {
  for (const bool stream : {false, true}) {
    backend.calls.clear();
    auto exchange = chat(stream ? kStream : "");
    emit(
        failure({ErrorCode::kContextLength, "9000 tokens exceed the context of 2048", "messages"}));
    ASSERT_TRUE(exchange->sent);
    EXPECT_EQ(exchange->head.status, 400u);
    EXPECT_EQ(body_json(*exchange).at("error").at("code"), "context_length_exceeded");
    EXPECT_TRUE(call().cancelled);
  }
}

TEST_F(Chat, OverloadSaysWhenToComeBack) {
  auto exchange = chat(kStream);
  emit(failure({ErrorCode::kUnavailable, "no node is up"}));
  EXPECT_EQ(exchange->head.status, 503u);
  EXPECT_NE(exchange->header("retry-after"), "");
}

TEST_F(Chat, AnErrorAfterTheFirstContentIsOneEventAndNoDone) {
  auto exchange = chat(kStream);
  emit(content("half"));
  emit(failure({ErrorCode::kUnavailable, "the node was lost"}));
  EXPECT_TRUE(exchange->ended);
  const auto all = frames(exchange->body);
  EXPECT_EQ(all.back().at("error").at("code"), "unavailable");
  EXPECT_EQ(exchange->body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(exchange->body.find("\"stop\""), std::string::npos);
  EXPECT_TRUE(call().cancelled);
  const std::size_t length = exchange->body.size();
  emit(content("late"));
  EXPECT_EQ(exchange->body.size(), length);
}

TEST_F(Chat, ContentThatCameWithTheFailureIsStillDelivered) {
  auto exchange = chat(kStream);
  call().emit(content("half"));
  call().emit(failure({ErrorCode::kModelFault, "NaN"}));
  loop.run();
  EXPECT_EQ(joined(exchange->body), "half");
  EXPECT_EQ(frames(exchange->body).back().at("error").at("code"), "model_fault");
}

TEST_F(Chat, ACancelledGenerationIsNeverAnAnswer) {
  auto exchange = chat();
  emit(content("half"));
  emit(finish(ChatFinish::Reason::kCancelled));
  EXPECT_EQ(exchange->head.status, 503u);
}

TEST_F(Chat, ALongSilenceGetsCommentsAndLaterFailuresAreEvents) {
  auto exchange = chat(kStream);
  loop.advance(9'999ms);
  EXPECT_FALSE(exchange->begun);
  loop.advance(1ms);
  EXPECT_TRUE(exchange->begun);
  EXPECT_EQ(exchange->body, ": keep-alive\n\n");
  loop.advance(80s);
  EXPECT_EQ(exchange->pieces.size(), 9u);
  emit(failure({ErrorCode::kUnavailable, "lost"}));
  EXPECT_EQ(frames(exchange->body).size(), 1u);
  EXPECT_TRUE(exchange->ended);
}

TEST_F(Chat, CommentsFillEverySilenceOfAStreamAndOnlySilence) {
  auto exchange = chat(kStream);
  emit(content("a"));
  for (int i = 0; i < 30; ++i) {
    loop.advance(4s);
    emit(content("b"));
  }
  EXPECT_EQ(exchange->body.find(": keep-alive"), std::string::npos);
  // Ninety seconds inside a tool call that is withheld.
  std::size_t before = exchange->pieces.size();
  loop.advance(90s);
  EXPECT_EQ(exchange->pieces.size() - before, 9u);
  emit(finish());
  EXPECT_EQ(frames(exchange->body).back(), "[DONE]");
}

TEST_F(Chat, AnAnswerThatIsNotStreamedGetsNoComments) {
  auto exchange = chat();
  loop.advance(90s);
  EXPECT_FALSE(exchange->complete());
  emit(failure({ErrorCode::kDeadlineExceeded, "too slow"}));
  EXPECT_EQ(exchange->head.status, 504u);
}

TEST_F(Chat, CommentsCanBeTurnedOff) {
  options.session.keepalive_after = 0ms;
  options.session.keepalive_interval = 0ms;
  auto exchange = chat(kStream);
  loop.advance(90s);
  EXPECT_FALSE(exchange->begun);
  emit(content("a"));
  loop.advance(90s);
  EXPECT_EQ(exchange->body.find(": keep-alive"), std::string::npos);
  emit(finish());
}

TEST_F(Chat, AClientThatLeavesCancelsTheWorkAtOnce) {
  for (const char* members : {"", R"("stream":true)"}) {
    backend.calls.clear();
    auto exchange = chat(members);
    emit(content("a"));
    exchange->client_leaves();
    loop.run();
    EXPECT_TRUE(call().cancelled);
    EXPECT_TRUE(call().destroyed);
    EXPECT_EQ(surface().num_running(), 0u);
    EXPECT_TRUE(emit(content("late")));  // harmless
  }
}

TEST_F(Chat, AClientThatLeavesBeforeTheWorkBeginsStartsNothing) {
  net::HttpRequest r;
  r.method = "POST";
  r.path = "/v1/chat/completions";
  r.body = R"({"model":"m","messages":[{"role":"user","content":"hi"}]})";
  auto exchange = std::make_shared<FakeExchange>(std::move(r));
  surface().handle(exchange);
  exchange->client_leaves();
  loop.run();
  // The task to begin was posted first, so the work began and was cancelled.
  ASSERT_EQ(backend.calls.size(), 1u);
  EXPECT_TRUE(call().cancelled);
}

TEST_F(Chat, ASlowReaderPausesTheBackendAndResumesItOnce) {
  auto exchange = chat(kStream);
  EXPECT_TRUE(emit(content("a")));
  exchange->has_room = false;
  EXPECT_TRUE(emit(content("b")));   // this write fills the queue
  EXPECT_FALSE(emit(content("c")));  // so this one asks for a pause
  EXPECT_EQ(call().num_resumes, 0);
  loop.advance(30s);  // no comments into a full queue
  EXPECT_EQ(exchange->body.find(": keep-alive"), std::string::npos);
  exchange->queue_drains();
  loop.run();
  EXPECT_EQ(call().num_resumes, 1);
  EXPECT_TRUE(emit(content("d")));
  EXPECT_EQ(call().num_resumes, 1);
  emit(finish());
  EXPECT_EQ(joined(exchange->body), "abcd");
}

TEST_F(Chat, ABackendThatOutrunsTheLaneIsPausedAndResumed) {
  auto exchange = chat(kStream);
  bool room = true;
  int sent = 0;
  while (room && sent < 10'000) {
    room = call().emit(content("x"));
    ++sent;
  }
  EXPECT_FALSE(room);
  EXPECT_LT(sent, 1000);
  loop.run();
  EXPECT_EQ(call().num_resumes, 1);
  EXPECT_EQ(exchange->pieces.size(), 1u);  // all that had gathered in one write
  EXPECT_EQ(joined(exchange->body), std::string(static_cast<std::size_t>(sent), 'x'));
  emit(finish());
}

TEST_F(Chat, ChoicesInterleaveAndEndOnce) {
  auto exchange = chat(R"("stream":true,"n":2,"stream_options":{"include_usage":true})");
  EXPECT_EQ(call().request.n, 2);
  emit(content("a0", {1}, 0));
  emit(content("b0", {1}, 1));
  emit(content("a1", {1}, 0));
  emit(finish(ChatFinish::Reason::kStop,
              {.prompt_tokens = 10, .completion_tokens = 2, .cached_tokens = 4}, 0));
  EXPECT_FALSE(exchange->ended);
  emit(content("b1", {1}, 1));
  emit(finish(ChatFinish::Reason::kLength,
              {.prompt_tokens = 10, .completion_tokens = 5, .cached_tokens = 9}, 1));
  EXPECT_TRUE(exchange->ended);
  EXPECT_EQ(joined(exchange->body, "content", 0), "a0a1");
  EXPECT_EQ(joined(exchange->body, "content", 1), "b0b1");
  const auto all = frames(exchange->body);
  const auto& usage = all[all.size() - 2].at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), 10);
  EXPECT_EQ(usage.at("completion_tokens"), 7);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 4);
  int roles = 0, finishes = 0, dones = 0;
  for (const auto& frame : all) {
    if (frame == "[DONE]") {
      ++dones;
      continue;
    }
    for (const auto& choice : frame.at("choices").as_array()) {
      roles += choice.at("delta").as_object().contains("role");
      finishes += !choice.at("finish_reason").is_null();
    }
  }
  EXPECT_EQ(roles, 2);
  EXPECT_EQ(finishes, 2);
  EXPECT_EQ(dones, 1);
}

TEST_F(Chat, AllChoicesOfAWholeAnswerComeInOrder) {
  auto exchange = chat(R"("n":2)");
  emit(content("b", {1}, 1));
  emit(finish(ChatFinish::Reason::kStop, {3, 1, 0, 0}, 1));
  emit(content("a", {1}, 0));
  emit(finish(ChatFinish::Reason::kStop, {3, 1, 0, 0}, 0));
  const auto body = body_json(*exchange);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "a");
  EXPECT_EQ(body.at("choices").at(1).at("message").at("content"), "b");
  EXPECT_EQ(body.at("choices").at(1).at("index"), 1);
}

TEST_F(Chat, AnEventOfNoChoiceIsTheBackendsFault) {
  auto exchange = chat();
  emit(content("x", {1}, 1));
  EXPECT_EQ(exchange->head.status, 500u);
  EXPECT_TRUE(call().cancelled);
}

TEST_F(Chat, LogprobsAndIdsOfAWholeAnswer) {
  auto exchange = chat(R"("logprobs":true,"top_logprobs":1,"return_token_ids":true)");
  EXPECT_TRUE(call().request.logprobs);
  ChatEvent event = content("hi", {5});
  event.logprobs = {{5, -0.5, "hi", {{5, -0.5, "hi", {}}}}};
  emit(event);
  emit(finish());
  const auto choice = body_json(*exchange).at("choices").at(0);
  EXPECT_EQ(choice.at("token_ids"), (boost::json::array{5}));
  EXPECT_EQ(choice.at("logprobs").at("content").at(0).at("token"), "hi");
}

TEST_F(Chat, TheCallerAndItsRequestIdReachTheBackend) {
  backend.key = "K";
  auto exchange = request("POST", "/v1/chat/completions",
                          R"({"model":"m","messages":[{"role":"user","content":"x"}]})",
                          {{"Authorization", "Bearer K"}, {"X-Request-Id", "abc-1"}});
  EXPECT_EQ(call().caller.request_id, "abc-1");
  EXPECT_EQ(call().caller.tenant, "t");
  EXPECT_EQ(call().caller.key_id, 2u);
  emit(finish());
  EXPECT_EQ(exchange->header("x-request-id"), "abc-1");
}

TEST_F(Chat, BodiesThatAreNoRequestsGet400WithoutEcho) {
  for (const std::string& body :
       {std::string("\xC4\xE3"),
        std::string(R"({"model":"m","messages":[{"role":"user","content":")") + "\xC4\xE3\"}]}",
        std::string(R"({"model":"m","messages":[{"role":"user","content":"\ud83d"}]})"),
        std::string("{:"), std::string(), std::string("[]"), std::string("null"),
        R"({"zz":)" + std::string(100'000, '['),
        std::string(R"({"model":"m","model":"n","messages":[]})")}) {
    auto exchange = request("POST", "/v1/chat/completions", body);
    ASSERT_TRUE(exchange->sent) << body.substr(0, 60);
    EXPECT_EQ(exchange->head.status, 400u) << body.substr(0, 60);
    const auto error = body_json(*exchange).at("error");
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_EQ(exchange->body.find("\xC4"), std::string::npos);
  }
  EXPECT_TRUE(backend.calls.empty());
}

TEST_F(Chat, AByteOrderMarkIsSkippedAndANulIsText) {
  auto exchange = request("POST", "/v1/chat/completions",
                          "\xEF\xBB\xBF"
                          R"({"model":"m","messages":[{"role":"user","content":"a\u0000b"}]})");
  ASSERT_EQ(backend.calls.size(), 1u);
  EXPECT_EQ(call().request.messages.at(0).at("content").as_string().size(), 3u);
  emit(finish());
}

TEST_F(Chat, DeepSchemasAreRefusedByTheirDepth) {
  std::string schema;
  for (int i = 0; i < 5000; ++i) schema += R"({"properties":)";
  schema += "1" + std::string(5000, '}');
  auto exchange =
      chat(R"("tools":[{"type":"function","function":{"name":"a","parameters":)" + schema + "}}]");
  EXPECT_EQ(exchange->head.status, 400u);
  EXPECT_NE(exchange->body.find("48"), std::string::npos) << exchange->body;
}

}  // namespace
}  // namespace flotilla::serving
