#include <gtest/gtest.h>

#include "flotilla/worker/messages.h"

namespace flotilla::worker {
namespace {

engine::ChatJob full_job() {
  engine::ChatJob job;
  job.messages = boost::json::parse(R"([{"role":"user","content":"é 😀","n":[1,-2,0.1,1.0,null]}])");
  job.tools = boost::json::parse(R"([{"type":"function"}])");
  job.template_variables["enable_thinking"] = true;
  job.raw_prompt = std::string("a\0b", 3);
  job.prompt_ids = {1, -2, 3};
  job.is_completion = true;
  job.render_time = 1'700'000'000;
  job.sampling.temperature = 0.1;
  job.sampling.logit_bias = {{5, -1.5}, {6, 100}};
  job.sampling.seed = ~std::uint64_t{0};
  job.stop = {"x", ""};
  job.stop_token_ids = {9};
  job.top_logprobs = 20;
  job.constraint.kind = grammar::Constraint::Kind::kJsonSchema;
  job.constraint.schema = boost::json::parse(R"({"type":"object"})");
  job.constraint.choices = {"a", "b"};
  job.tenant = "t";
  job.first_token_within = std::chrono::milliseconds(1234);
  job.resume_ids = {7, 8};
  return job;
}

TEST(WorkerWire, AJobArrivesAsItWas) {
  const engine::ChatJob sent = full_job();
  const std::string bytes = packed(sent);
  engine::ChatJob got;
  ASSERT_TRUE(unpack(bytes, got));
  EXPECT_EQ(packed(got), bytes);
  EXPECT_EQ(got.messages, sent.messages);
  EXPECT_EQ(got.raw_prompt, sent.raw_prompt);
  EXPECT_EQ(got.prompt_ids, sent.prompt_ids);
  EXPECT_EQ(got.sampling.temperature, sent.sampling.temperature);
  EXPECT_EQ(got.sampling.logit_bias, sent.sampling.logit_bias);
  EXPECT_EQ(got.sampling.seed, sent.sampling.seed);
  EXPECT_EQ(got.constraint, sent.constraint);
  EXPECT_EQ(got.first_token_within, sent.first_token_within);
  EXPECT_EQ(got.resume_ids, sent.resume_ids);
}

TEST(WorkerWire, AnEventArrivesAsItWas) {
  engine::TokenEvent sent{.request = RequestId{7}, .first_index = 3, .ids = {1, 2}};
  sent.deltas = {
      {.channel = chat::Channel::kToolCall, .text = "{", .call_index = 0, .call_name = "weather"}};
  // Half a character: no JSON string could hold it.
  sent.logprobs = {{.id = 1, .logprob = -0.1, .bytes = "\xF0\x9F", .top = {{.id = 2}}}};
  sent.finish = engine::Finish{.reason = engine::FinishReason::kError,
                               .error = Error{ErrorCode::kModelFault, "what", "where"},
                               .matched_stop = "s",
                               .usage = {.prompt_tokens = 1, .reasoning_tokens = 4}};
  const std::string bytes = packed(sent);
  engine::TokenEvent got;
  ASSERT_TRUE(unpack(bytes, got));
  EXPECT_EQ(packed(got), bytes);
  EXPECT_EQ(got.request, sent.request);
  EXPECT_EQ(got.deltas, sent.deltas);
  ASSERT_EQ(got.logprobs.size(), 1u);
  EXPECT_EQ(got.logprobs[0].bytes, "\xF0\x9F");
  EXPECT_EQ(got.logprobs[0].top.at(0).id, 2);
  ASSERT_TRUE(got.finish && got.finish->error);
  EXPECT_EQ(got.finish->error->param, "where");
  EXPECT_EQ(got.finish->usage.reasoning_tokens, 4);
}

TEST(WorkerWire, BytesThatEndEarlyOrLateAreNoMessage) {
  const std::string bytes = packed(full_job());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    engine::ChatJob job;
    EXPECT_FALSE(unpack(std::string_view(bytes).substr(0, size), job)) << size;
  }
  engine::ChatJob job;
  EXPECT_FALSE(unpack(bytes + "x", job));
}

// A length that is not there must not be allocated.
TEST(WorkerWire, AnAbsurdLengthIsRefused) {
  const std::string bytes = packed(~std::uint64_t{0} / 2);
  std::string text;
  EXPECT_FALSE(unpack(bytes, text));
  std::vector<TokenId> ids;
  EXPECT_FALSE(unpack(bytes, ids));
  std::vector<std::string> texts;
  EXPECT_FALSE(unpack(bytes, texts));
}

}  // namespace
}  // namespace flotilla::worker
