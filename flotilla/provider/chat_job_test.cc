#include "flotilla/provider/chat_job.h"

#include <gtest/gtest.h>

#include <limits>

#include "flotilla/protocol/identity.h"
#include "flotilla/provider/test_fakes.h"

namespace flotilla::provider {
namespace {

engine::EngineInfo info_of_model() {
  engine::EngineInfo info;
  info.model = "m";
  info.vocab_size = 100;
  info.sampling_defaults.temperature = 0.5;
  info.sampling_defaults.top_k = 64;
  return info;
}

constexpr std::string_view kPlain =
    R"({"model": "m", "messages": [{"role": "user", "content": "hi"}]})";

TEST(ChatJob, OpenParametersComeFromTheModelThenFromOpenAi) {
  const auto job = to_chat_job(chat_request(kPlain), info_of_model(), 2, "tenant");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->sampling.temperature, 0.5);
  EXPECT_EQ(job->sampling.top_k, 64);
  EXPECT_EQ(job->sampling.top_p, 1.0);
  EXPECT_EQ(job->sampling.repetition_penalty, 1.0);
  EXPECT_EQ(job->sampling.seed, 7u);
  EXPECT_EQ(job->sampling.choice, 2u);
  EXPECT_EQ(job->max_tokens, 0);
  EXPECT_EQ(job->top_logprobs, -1);
  EXPECT_EQ(job->tenant, "tenant");
  EXPECT_EQ(job->render_time, 1'700'000'000);
  const auto plain = to_chat_job(chat_request(kPlain), {}, 0, "");
  EXPECT_EQ(plain->sampling.temperature, 1.0);
  EXPECT_EQ(plain->sampling.top_k, 0);
}

TEST(ChatJob, WhatTheClientSaysWins) {
  const auto job =
      to_chat_job(chat_request(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}],
      "temperature": 0, "top_k": -1, "top_p": 0.25, "min_p": 0.125, "max_completion_tokens": 9, "min_tokens": 2,
      "stop": ["x"], "stop_token_ids": [3], "logprobs": true, "top_logprobs": 5, "logit_bias": {"4": -2},
      "repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": -0.5, "ignore_eos": true,
      "return_token_ids": true})"),
                  info_of_model(), 0, "");
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->sampling.temperature, 0);
  EXPECT_EQ(job->sampling.top_k, 0);
  EXPECT_EQ(job->sampling.top_p, 0.25);
  EXPECT_EQ(job->sampling.min_p, 0.125);
  EXPECT_EQ(job->sampling.repetition_penalty, 1.5);
  EXPECT_EQ(job->sampling.presence_penalty, 0.5);
  EXPECT_EQ(job->sampling.frequency_penalty, -0.5);
  EXPECT_EQ(job->max_tokens, 9);
  EXPECT_EQ(job->min_tokens, 2);
  EXPECT_EQ(job->stop, std::vector<std::string>{"x"});
  EXPECT_EQ(job->stop_token_ids, std::vector<TokenId>{3});
  EXPECT_EQ(job->top_logprobs, 5);
  EXPECT_EQ(job->sampling.logit_bias.size(), 1u);
  EXPECT_TRUE(job->ignore_eos);
  EXPECT_TRUE(job->wants_token_ids);
}

TEST(ChatJob, ConstraintsCarryTheirPlaceAndTheToolsTheyMean) {
  using grammar::Constraint;
  const auto job = [](std::string_view members) {
    auto made = to_chat_job(
        chat_request(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}], )" +
                     std::string(members) + "}"),
        {}, 0, "");
    EXPECT_TRUE(made.ok());
    return made->constraint;
  };
  constexpr std::string_view kTools =
      R"("tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g", "strict": true}}])";
  EXPECT_TRUE(to_chat_job(chat_request(kPlain), {}, 0, "")->constraint.is_none());
  const Constraint schema = job(
      R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "null"}}})");
  EXPECT_EQ(schema.kind, Constraint::Kind::kJsonSchema);
  EXPECT_EQ(schema.param, "response_format.json_schema.schema");
  EXPECT_EQ(schema.calls, Constraint::Calls::kFree);
  EXPECT_EQ(job(R"("guided_choice": ["a", "b"])").choices, (std::vector<std::string>{"a", "b"}));
  const Constraint forced = job(std::string(kTools) + R"(, "tool_choice": "required")");
  EXPECT_EQ(forced.calls, Constraint::Calls::kForced);
  EXPECT_TRUE(forced.parallel && forced.function.empty());
  const Constraint named = job(
      std::string(kTools) + R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})");
  EXPECT_EQ(named.function, "f");
  EXPECT_FALSE(named.parallel);
  const Constraint strict = job(std::string(kTools) + R"(, "parallel_tool_calls": false)");
  EXPECT_EQ(strict.calls, Constraint::Calls::kStrict);
  EXPECT_EQ(strict.strict_tools, std::vector<std::string>{"g"});
  EXPECT_FALSE(strict.parallel);
  EXPECT_TRUE(job(R"("tools": [{"type": "function", "function": {"name": "f"}}])").is_none());
}

// B32: a token outside the vocabulary must not reach a kernel.
TEST(ChatJob, RefusesTokensOutsideTheVocabularyByName) {
  const auto bias =
      to_chat_job(chat_request(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}],
      "logit_bias": {"100": 1}})"),
                  info_of_model(), 0, "");
  ASSERT_FALSE(bias.ok());
  EXPECT_EQ(bias.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(bias.error().param, "logit_bias");
  const auto stop =
      to_chat_job(chat_request(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}],
      "stop_token_ids": [100]})"),
                  info_of_model(), 0, "");
  ASSERT_FALSE(stop.ok());
  EXPECT_EQ(stop.error().param, "stop_token_ids");
}

TEST(ChatJob, AdmissionKeepsTheClientsSeedAndDrawsOneOtherwise) {
  api::ChatRequest seeded = chat_request(kPlain), open = seeded, other = seeded;
  seeded.seed = 42;
  fix_at_admission(seeded, 5);
  fix_at_admission(open, 5);
  fix_at_admission(other, 5);
  EXPECT_EQ(seeded.sampling_seed, 42u);
  EXPECT_EQ(seeded.render_time, 5);
  EXPECT_NE(open.sampling_seed, other.sampling_seed);
}

TEST(ChatJob, ACallHasOneIdThatEveryAttemptRepeats) {
  const JobId job = protocol::random_job_id();
  const chat::OutputDelta first{chat::Channel::kToolCall, "", 1, "f"},
      later{chat::Channel::kToolCall, "{}", 1};
  EXPECT_FALSE(CallIds(job).first_id(first).empty());
  EXPECT_EQ(CallIds(job).first_id(first), CallIds(job).first_id(first));
  EXPECT_NE(CallIds(job).first_id(first), CallIds(protocol::random_job_id()).first_id(first));
  EXPECT_TRUE(CallIds(job).first_id(later).empty());
}

TEST(ChatJob, AStopAfterCallsIsToolCallsAndACutOneIsLength) {
  using Reason = serving::ChatFinish::Reason;
  engine::Finish finish;
  EXPECT_EQ(to_chat_finish(finish, true).reason, Reason::kToolCalls);
  EXPECT_EQ(to_chat_finish(finish, false).reason, Reason::kStop);
  finish.reason = engine::FinishReason::kLength;
  EXPECT_EQ(to_chat_finish(finish, true).reason, Reason::kLength);
  finish.reason = engine::FinishReason::kError;
  EXPECT_TRUE(to_chat_finish(finish, false).error.has_value());
  EXPECT_EQ(to_wire_finish(finish, true, 3).reason, protocol::WireFinishReason::kError);
  EXPECT_EQ(to_wire_finish(finish, true, 3).num_ids, 3u);
}

// B26: JSON has no infinity, and the wire has none either.
TEST(ChatJob, LogprobsAreFinite) {
  engine::TokenEvent event;
  event.ids = {1, 2};
  engine::TokenLogprob infinite{1, -std::numeric_limits<double>::infinity(), "a"};
  engine::TokenLogprob nan{2, std::numeric_limits<double>::quiet_NaN(), "b"};
  nan.top.push_back({3, -1e300, "c"});
  event.logprobs = {infinite, nan};
  const protocol::Tokens tokens = to_tokens(event, CallIds(JobId{}));
  EXPECT_EQ(tokens.logprobs[0].logprob, -9999.0);
  EXPECT_EQ(tokens.logprobs[1].logprob, -9999.0);
  EXPECT_EQ(tokens.logprobs[1].top[0].logprob, -9999.0);
}

}  // namespace
}  // namespace flotilla::provider
