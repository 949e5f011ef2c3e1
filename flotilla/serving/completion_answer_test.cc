#include "flotilla/serving/completion_answer.h"

#include "flotilla/serving/testing.h"

namespace flotilla::serving {
namespace {

using boost::json::value;

class Completions : public SurfaceTest {
 protected:
  std::shared_ptr<FakeExchange> complete(const std::string& members) {
    return request("POST", "/v1/completions", R"({"model":"org/tiny",)" + members + "}");
  }
};

ChatEvent scored(std::string text, double logprob, int choice = 0) {
  ChatEvent event = content(text, {1}, choice);
  event.logprobs = {{1, logprob, std::move(text)}};
  return event;
}

TEST_F(Completions, AWholeAnswer) {
  auto exchange = complete(R"("prompt":"a")");
  EXPECT_EQ(call().request.prompt, "a");
  emit(content("b"));
  emit(content("c"));
  emit(finish(ChatFinish::Reason::kLength, {.prompt_tokens = 1, .completion_tokens = 2}));
  const value body = body_json(*exchange);
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_TRUE(std::string_view(body.at("id").as_string()).starts_with("cmpl-"));
  EXPECT_EQ(
      body.at("choices"),
      json::parse(R"([{"index":0,"text":"bc","logprobs":null,"finish_reason":"length"}])").value());
  EXPECT_EQ(body.at("usage").at("total_tokens"), 3);
}

TEST_F(Completions, ChoicesAreNumberedPromptByPrompt) {
  auto exchange = complete(R"("prompt":["a","b"],"n":2)");
  ASSERT_EQ(backend.calls.size(), 2u);
  for (std::size_t job : {1u, 0u}) {
    for (int choice : {1, 0}) {
      emit(content(std::to_string(job) + std::to_string(choice), {1}, choice), job);
      emit(finish(ChatFinish::Reason::kStop,
                  {.prompt_tokens = 10 + static_cast<std::int64_t>(job),
                   .completion_tokens = 1,
                   .cached_tokens = choice == 0 ? 2 : 9},
                  choice),
           job);
    }
  }
  ASSERT_TRUE(exchange->sent);
  const value body = body_json(*exchange);
  const char* expected[] = {"00", "01", "10", "11"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body.at("choices").at(i).at("text"), expected[i]);
    EXPECT_EQ(body.at("choices").at(i).at("index"), i);
  }
  // Each prompt once, each answer once.
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 21);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 4);
  EXPECT_EQ(body.at("usage").at("prompt_tokens_details").at("cached_tokens"), 4);
}

TEST_F(Completions, ALostPromptFailsTheRequestAndStopsTheOthers) {
  auto exchange = complete(R"("prompt":["a","b"])");
  emit(failure({ErrorCode::kUnavailable, "gone"}), 1);
  EXPECT_EQ(exchange->head.status, 503u);
  EXPECT_TRUE(call(0).cancelled);
}

TEST_F(Completions, TheLikeliestOfSeveralAreKept) {
  auto exchange = complete(R"("prompt":"p","n":2,"best_of":3)");
  EXPECT_EQ(call().request.n, 3);
  EXPECT_TRUE(call().request.logprobs);
  emit(scored("bad", -5, 0));
  emit(scored("good", -1, 1));
  emit(scored("better, but long", -0.5, 2));
  emit(scored(" indeed", -0.5, 2));
  for (int choice : {0, 1, 2})
    emit(finish(ChatFinish::Reason::kStop, {.prompt_tokens = 1, .completion_tokens = 1}, choice));
  const value body = body_json(*exchange);
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "better, but long indeed");
  EXPECT_EQ(body.at("choices").at(1).at("text"), "good");
  EXPECT_EQ(body.at("choices").at(1).at("index"), 1);
  EXPECT_EQ(body.at("choices").at(0).at("logprobs"), nullptr);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 3);  // what was computed
}

TEST_F(Completions, LogprobsAreParallelLists) {
  auto exchange = complete(R"("prompt":"p","logprobs":2)");
  ChatEvent first = scored("aé", -0.5);
  first.logprobs[0].top = {{1, -0.5, "aé"}, {2, -std::numeric_limits<double>::infinity(), "b"}};
  emit(std::move(first));
  ChatEvent half = content("", {2});
  half.logprobs = {{2, -1, "\xF0\x9F"}};
  emit(std::move(half));
  emit(scored("c", -2));
  emit(finish());
  const value logprobs = body_json(*exchange).at("choices").at(0).at("logprobs");
  EXPECT_EQ(logprobs.at("tokens"), json::parse(R"(["aé","bytes:\\xf0\\x9f","c"])").value());
  EXPECT_EQ(logprobs.at("token_logprobs").at(0).to_number<double>(), -0.5);
  EXPECT_EQ(logprobs.at("text_offset"), json::parse("[0,2,3]").value());
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).at("b").to_number<double>(), -9999);
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).as_object().size(), 2u);
  EXPECT_EQ(logprobs.at("top_logprobs").at(2).at("c").to_number<double>(), -2);
}

TEST_F(Completions, AStreamHasTextChunksAndOneFinish) {
  auto exchange =
      complete(R"("prompt":"p","echo":true,"stream":true,"stream_options":{"include_usage":true})");
  emit(content("a"));
  emit(content("b"));
  emit(finish());
  const auto all = frames(exchange->body);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].at("object"), "text_completion");
  EXPECT_EQ(all[0].at("choices").at(0).at("text"), "pa");
  EXPECT_EQ(all[0].at("usage"), nullptr);
  EXPECT_EQ(all[1].at("choices").at(0).at("text"), "b");
  EXPECT_EQ(all[1].at("choices").at(0).at("finish_reason"), nullptr);
  EXPECT_EQ(all[2].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(all[3].at("choices"), boost::json::array());
  EXPECT_EQ(all[3].at("usage").at("completion_tokens"), 2);
  EXPECT_EQ(all[4], "[DONE]");
}

TEST_F(Completions, EchoAloneIsThePrompt) {
  auto exchange = complete(R"("prompt":["p","q"],"echo":true,"max_tokens":0)");
  for (std::size_t job : {0u, 1u}) {
    EXPECT_TRUE(call(job).request.count_only);
    emit(finish(ChatFinish::Reason::kLength, {.prompt_tokens = 1}), job);
  }
  const value body = body_json(*exchange);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "p");
  EXPECT_EQ(body.at("choices").at(1).at("text"), "q");
}

TEST_F(Completions, AFailureInAStreamIsOneErrorFrame) {
  auto exchange = complete(R"("prompt":"p","stream":true)");
  emit(content("half"));
  emit(failure({ErrorCode::kUnavailable, "gone"}));
  const auto all = frames(exchange->body);
  EXPECT_EQ(all.back().at("error").at("code"), "unavailable");
  EXPECT_EQ(exchange->body.find("[DONE]"), std::string::npos);
}

}  // namespace
}  // namespace flotilla::serving
