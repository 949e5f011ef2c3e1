#include "flotilla/engine/scripted_engine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <random>
#include <thread>

#include "flotilla/base/text.h"
#include "flotilla/engine/engine_test_util.h"

namespace flotilla::engine {
namespace {

using std::chrono::milliseconds;

std::shared_ptr<TextEngine> engine_of(std::string_view script) {
  auto engine = make_scripted_engine(script);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return *engine;
}

std::string with_steps(std::string_view steps) {
  return R"({"rules": [{"steps": )" + std::string(steps) + "}]}";
}

TEST(ScriptedEngine, AnswersByTheFirstRuleThatMatches) {
  const auto engine = engine_of(R"({"rules": [
    {"match": {"user": "weather"}, "steps": ["Sunny."]},
    {"match": {"prompt": "system: Be brief"}, "steps": ["Ok."]},
    {"match": {"choice": 1}, "steps": ["Second."]},
    {"match": {"times": 1}, "steps": ["Once."]},
    {"steps": ["Else."]}]})");
  EXPECT_EQ(start(*engine, chat_job("the weather?"))->wait()->reason, FinishReason::kStop);
  const auto say = [&](ChatJob job) {
    const auto log = start(*engine, std::move(job));
    EXPECT_TRUE(log->wait().has_value());
    return log->text();
  };
  EXPECT_EQ(say(chat_job("the weather?")), "Sunny.");
  ChatJob brief = chat_job("hello");
  brief.messages.get_array().insert(
      brief.messages.get_array().begin(),
      boost::json::object{{"role", "system"}, {"content", "Be brief"}});
  EXPECT_EQ(say(brief), "Ok.");
  ChatJob second = chat_job("hello");
  second.sampling.choice = 1;
  EXPECT_EQ(say(second), "Second.");
  EXPECT_EQ(say(chat_job("hello")), "Once.");
  EXPECT_EQ(say(chat_job("hello")), "Else.");
}

TEST(ScriptedEngine, JoinsCharactersCutByTokens) {
  const auto engine = engine_of(with_steps(
      R"([{"bytes": "F09F"}, {"bytes": "9880"}, {"bytes": "E8B5"}, {"bytes": "8B"}, {"bytes": "20"}])"));
  const auto log = start(*engine, chat_job("x"));
  EXPECT_EQ(log->wait()->usage.completion_tokens, 5);
  EXPECT_EQ(log->text(), "\xF0\x9F\x98\x80\xE8\xB5\x8B ");
  for (const TokenEvent& event : log->events()) {
    for (const auto& delta : event.deltas) EXPECT_TRUE(is_valid_utf8(delta.text));
  }
}

TEST(ScriptedEngine, NoSplitOfATextShowsReplacementMarks) {
  const std::string text = "aé赋😀👩‍🚀";
  std::mt19937 random(19);
  for (int round = 0; round < 1000; ++round) {
    boost::json::array steps;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + random() % 4;
      const std::string piece = text.substr(at, n);
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
      steps.push_back(boost::json::object{{"bytes", to_hex({bytes, piece.size()})}});
      at += n;
    }
    const auto engine = engine_of(with_steps(boost::json::serialize(steps)));
    const auto log = start(*engine, chat_job("x"));
    ASSERT_TRUE(log->wait().has_value());
    ASSERT_EQ(log->text(), text);
    for (const TokenEvent& event : log->events()) {
      for (const auto& delta : event.deltas) ASSERT_TRUE(is_valid_utf8(delta.text));
    }
  }
}

TEST(ScriptedEngine, BytesThatAreNoTextBecomeReplacementMarks) {
  const auto engine =
      engine_of(with_steps(R"(["a", {"bytes": "FF"}, {"bytes": "F09F"}, "b", {"bytes": "E8"}])"));
  const auto log = start(*engine, chat_job("x"));
  log->wait();
  EXPECT_EQ(log->text(),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(ScriptedEngine, StopStringsWorkAcrossTokens) {
  struct Case {
    std::string steps;
    std::vector<std::string> stop;
    std::string content;
    std::int64_t tokens;
    FinishReason reason = FinishReason::kStop;
  };
  const std::vector<Case> cases{
      {R"(["one tw", "o thr", "ee four"])", {"two three"}, "one ", 3},
      {R"(["a STOP b", "c"])", {"STOP"}, "a ", 1},
      {R"(["xa", "b", "cd"])", {"abc", "ab"}, "x", 2},
      {R"(["go ", {"bytes": "F09F"}, {"bytes": "9880"}, "on"])", {"\xF0\x9F\x98\x80"}, "go ", 3},
      {R"(["ab", "ab", "x"])", {"abc"}, "ababx", 3},
  };
  for (const Case& c : cases) {
    const auto engine = engine_of(with_steps(c.steps));
    ChatJob job = chat_job("x");
    job.stop = c.stop;
    const auto log = start(*engine, job);
    const auto finish = log->wait();
    EXPECT_EQ(log->text(), c.content);
    EXPECT_EQ(finish->reason, c.reason);
    EXPECT_EQ(finish->usage.completion_tokens, c.tokens) << c.steps;
  }
}

TEST(ScriptedEngine, EndsAtMaxTokensAndAtTheContextEnd) {
  const auto engine =
      engine_of(R"({"context_length": 128, "rules": [{"loop": true, "steps": ["a "]}]})");
  ChatJob job = chat_job("x");
  job.max_tokens = 5;
  auto finish = start(*engine, job)->wait();
  EXPECT_EQ(finish->reason, FinishReason::kLength);
  EXPECT_EQ(finish->usage.completion_tokens, 5);

  const auto words = [](int count) {
    std::string text;
    for (int i = 1; i < count; ++i) text += "w ";  // the message itself is one token
    return text;
  };
  for (const int n : {120, 127}) {
    ChatJob long_job = chat_job(words(n));
    long_job.max_tokens = 100;
    finish = start(*engine, long_job)->wait();
    EXPECT_EQ(finish->usage.prompt_tokens, n);
    EXPECT_EQ(finish->usage.completion_tokens, 128 - n);
    EXPECT_EQ(finish->reason, FinishReason::kLength);
  }
  for (const int n : {128, 129, 5000}) {
    const auto refused = engine->prepare(chat_job(words(n)));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kContextLength);
    EXPECT_NE(refused.error().message.find("prompt of " + std::to_string(n) +
                                           " tokens exceeds the context of 128"),
              std::string::npos);
  }
}

TEST(ScriptedEngine, FailsHangsAndCancelsOnOrder) {
  const auto failing =
      engine_of(with_steps(R"(["a", {"fail": {"code": "unavailable", "message": "node gone"}}])"));
  auto log = start(*failing, chat_job("x"));
  auto finish = log->wait();
  EXPECT_EQ(finish->reason, FinishReason::kError);
  EXPECT_EQ(finish->error->code, ErrorCode::kUnavailable);
  EXPECT_EQ(log->text(), "a");

  const auto broken = engine_of(with_steps(R"(["a", {"nan": true}])"));
  EXPECT_EQ(start(*broken, chat_job("x"))->wait()->error->code, ErrorCode::kModelFault);

  const auto hanging = engine_of(with_steps(R"(["a", {"hang": true}, "never"])"));
  RequestId id;
  log = start(*hanging, chat_job("x"), 0, &id);
  ASSERT_TRUE(log->wait_events(1));
  EXPECT_EQ(hanging->stats().num_running, 1u);
  hanging->cancel(id);
  finish = log->wait();
  EXPECT_EQ(finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(log->text(), "a");
  hanging->cancel(id);  // idempotent
  hanging->cancel(RequestId{999});
  for (int i = 0; i < 100 && hanging->stats().num_running > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(hanging->stats().num_running, 0u);
}

TEST(ScriptedEngine, RefusesWhenItsQueueIsFull) {
  const auto engine = engine_of(
      R"({"max_concurrent": 1, "max_waiting": 1, "rules": [{"steps": [{"hang": true}]}]})");
  std::vector<RequestId> ids(2);
  const auto first = start(*engine, chat_job("x"), 0, &ids[0]);
  const auto second = start(*engine, chat_job("x"), 0, &ids[1]);
  EXPECT_EQ(start(*engine, chat_job("x"))->wait()->error->code, ErrorCode::kResourceExhausted);
  engine->cancel(ids[1]);  // a waiting one
  EXPECT_EQ(second->wait()->reason, FinishReason::kCancelled);
  engine->cancel(ids[0]);
  EXPECT_EQ(first->wait()->reason, FinishReason::kCancelled);
}

TEST(ScriptedEngine, ASlowReaderPausesOnlyItself) {
  const auto engine = engine_of(R"({"rules": [
    {"match": {"user": "slow"}, "steps": [{"repeat": 6, "steps": ["s"]}]},
    {"steps": [{"repeat": 50, "steps": [{"text": "f", "delay_ms": 0.2}]}]}]})");
  RequestId id;
  const auto slow = start(*engine, chat_job("slow"), 2, &id);
  const auto fast = start(*engine, chat_job("fast"));
  EXPECT_EQ(fast->wait()->usage.completion_tokens, 50);
  EXPECT_EQ(slow->events().size(), 2u);
  for (int i = 0; i < 10 && !(slow->events().back().finish); ++i) {
    engine->resume_output(id);
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(slow->wait()->reason, FinishReason::kStop);
  EXPECT_EQ(slow->text(), "ssssss");
}

TEST(ScriptedEngine, KeepsItsTimetable) {
  const auto engine =
      engine_of(with_steps(R"(["a", {"wait_ms": 30}, {"text": "b", "delay_ms": 30}])"));
  const auto begin = std::chrono::steady_clock::now();
  start(*engine, chat_job("x"))->wait();
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, milliseconds(60));
  EXPECT_LT(took, milliseconds(20'000));
}

TEST(ScriptedEngine, SplitsThoughtsAndCallsLikeTheFamily) {
  const auto engine = engine_of(with_steps(
      R"(["<|channel>", "thought\nlet me see", "<channel|>", "Hello ",
          "<|tool_call>call:now{}<tool_call|>", {"end": true}])"));
  const auto log = start(*engine, chat_job("x"));
  const auto finish = log->wait();
  EXPECT_EQ(log->text(chat::Channel::kReasoning), "let me see");
  EXPECT_EQ(log->text(chat::Channel::kToolCall), "{}");
  EXPECT_GT(finish->usage.reasoning_tokens, 0);
  std::string name;
  for (const TokenEvent& event : log->events()) {
    for (const auto& delta : event.deltas) name += delta.call_name;
  }
  EXPECT_EQ(name, "now");
}

TEST(ScriptedEngine, APromptThatEndsInAThoughtStartsThere) {
  const auto engine = engine_of(R"({"rules": [{"prompt_suffix": "<|channel>thought\n",
      "steps": ["deep", "<channel|>", "flat"]}]})");
  const auto log = start(*engine, chat_job("x"));
  log->wait();
  EXPECT_EQ(log->text(chat::Channel::kReasoning), "deep");
  EXPECT_EQ(log->text(), "flat");
}

TEST(ScriptedEngine, ResumesWhereAnotherLeftOff) {
  const std::string steps = R"(["one ", {"bytes": "F09F"}, {"bytes": "9880"}, " two", " STOP"])";
  const auto engine = engine_of(with_steps(steps));
  ChatJob job = chat_job("x");
  job.stop = {"STOP"};
  const auto whole = start(*engine, job);
  const auto whole_finish = whole->wait();
  const std::vector<TokenId> ids = whole->ids();
  for (std::size_t n = 0; n <= ids.size(); ++n) {
    ChatJob resumed = job;
    resumed.resume_ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    const auto log = start(*engine, resumed);
    const auto finish = log->wait();
    EXPECT_EQ(log->ids(), ids);
    EXPECT_EQ(log->text(), whole->text());
    EXPECT_EQ(finish->usage.completion_tokens, whole_finish->usage.completion_tokens);
    EXPECT_EQ(log->events().front().first_index, 0u);
  }
  ChatJob wrong = job;
  wrong.resume_ids = {ids[0], 12345};
  EXPECT_EQ(start(*engine, wrong)->wait()->error->code, ErrorCode::kInvalidArgument);
}

TEST(ScriptedEngine, RefusesInPrepareOnOrder) {
  const auto engine = engine_of(R"({"rules": [{"match": {"user": "bad"}, "refuse":
      {"code": "invalid_argument", "message": "roles must alternate"}}, {"steps": ["ok"]}]})");
  const auto refused = engine->prepare(chat_job("bad"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "roles must alternate");
  EXPECT_EQ(start(*engine, chat_job("good"))->wait()->reason, FinishReason::kStop);
}

TEST(ScriptedEngine, ServesManyRequestsAtOnceWithoutMixingThem) {
  const auto engine = engine_of(
      R"({"max_concurrent": 200, "max_waiting": 200, "rules": [{"steps":
        [{"echo": "user"}, {"repeat": 20, "steps": [{"text": ".", "delay_ms": 0.5}]}, {"echo": "seed"}]}]})");
  std::vector<std::shared_ptr<EventLog>> logs;
  for (int i = 0; i < 300; ++i) {
    ChatJob job = chat_job("user" + std::to_string(i));
    job.sampling.seed = static_cast<std::uint64_t>(i);
    logs.push_back(start(*engine, job));
  }
  for (int i = 0; i < 300; ++i) {
    const auto finish = logs[static_cast<std::size_t>(i)]->wait();
    ASSERT_TRUE(finish.has_value());
    EXPECT_EQ(logs[static_cast<std::size_t>(i)]->text(),
              "user" + std::to_string(i) + std::string(20, '.') + std::to_string(i));
  }
}

TEST(ScriptedEngine, IsIdleWhenNothingIsDue) {
  const auto engine = engine_of(with_steps(R"(["a", {"hang": true}])"));
  const auto log = start(*engine, chat_job("x"));
  log->wait_events(1);
  const auto cpu = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = cpu();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(cpu() - before, 0.05);
}

TEST(ScriptedEngine, EndsEveryRequestWhenItIsDestroyed) {
  auto engine = engine_of(with_steps(R"([{"hang": true}])"));
  const auto log = start(*engine, chat_job("x"));
  engine.reset();
  EXPECT_EQ(log->wait()->error->code, ErrorCode::kUnavailable);
}

TEST(ScriptedEngine, LogprobsAreThereWhenAskedFor) {
  const auto engine = engine_of(with_steps(R"([{"text": "a", "logprob": -9999}, "b"])"));
  ChatJob job = chat_job("x");
  job.top_logprobs = 2;
  const auto log = start(*engine, job);
  log->wait();
  std::vector<TokenLogprob> logprobs;
  for (const TokenEvent& event : log->events()) {
    logprobs.insert(logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  }
  ASSERT_EQ(logprobs.size(), 2u);
  EXPECT_EQ(logprobs[0].logprob, -9999);
  ASSERT_EQ(logprobs[0].top.size(), 2u);
  EXPECT_EQ(logprobs[0].top[1].logprob, -9999);
}

}  // namespace
}  // namespace flotilla::engine
