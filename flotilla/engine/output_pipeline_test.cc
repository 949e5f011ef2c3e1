#include "flotilla/engine/output_pipeline.h"

#include <gtest/gtest.h>

#include <map>

namespace flotilla::engine {
namespace {

using chat::Channel;
using chat::OutputDelta;

// Passes text on; "<think>" and "</think>" switch the channel; holds back a trailing '~' until the
// next piece or the end.
class FakeParser final : public chat::OutputParser {
 public:
  std::vector<OutputDelta> push(std::string_view text, std::string_view special) override {
    if (special == "<think>") channel_ = Channel::kReasoning;
    if (special == "</think>") channel_ = Channel::kContent;
    if (!special.empty()) return {};
    std::string out = std::exchange(held_, {}) + std::string(text);
    if (out.ends_with('~')) {
      out.pop_back();
      held_ = "~";
    }
    if (out.empty()) return {};
    return {{.channel = channel_, .text = out}};
  }
  std::vector<OutputDelta> finish() override {
    if (held_.empty()) return {};
    return {{.channel = channel_, .text = held_}};
  }
  int num_calls() const override { return 0; }
  bool inside_call() const override { return false; }

 private:
  Channel channel_ = Channel::kContent;
  std::string held_;
};

class FakeDecoder final : public TokenDecoder {
 public:
  explicit FakeDecoder(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  TokenText push(TokenId id) override {
    const std::string& piece = pieces_.at(static_cast<std::size_t>(id));
    if (piece.starts_with('<')) return {.text = {}, .special = piece};
    return {.text = piece, .special = {}};
  }
  std::string finish() override { return {}; }

 private:
  std::vector<std::string> pieces_;
};

struct Outcome {
  std::string content, reasoning;
  Finish finish;
  int pushed = 0;
  std::vector<TokenId> ids;
};

Outcome run(const ChatJob& job, const std::vector<std::string>& pieces,
            FinishReason at_end = FinishReason::kStop) {
  OutputPipeline pipeline(job, 3, std::make_unique<FakeParser>(),
                          std::make_unique<FakeDecoder>(pieces));
  Outcome out;
  const auto take = [&] {
    const TokenEvent event = pipeline.take_event(RequestId{1});
    EXPECT_EQ(event.first_index, out.ids.size());
    out.ids.insert(out.ids.end(), event.ids.begin(), event.ids.end());
    for (const OutputDelta& delta : event.deltas) {
      (delta.channel == Channel::kContent ? out.content : out.reasoning) += delta.text;
    }
    if (event.finish) out.finish = *event.finish;
  };
  bool stopped = false;
  for (std::size_t i = 0; i < pieces.size() && !stopped; ++i) {
    stopped = pipeline.push(static_cast<TokenId>(i));
    ++out.pushed;
    if (!stopped) take();
  }
  pipeline.finish(stopped ? FinishReason::kStop : at_end);
  take();
  return out;
}

TEST(OutputPipeline, CountsTheTokensUpToAStopString) {
  ChatJob job;
  job.stop = {"two three"};
  const Outcome out = run(job, {"one tw", "o thr", "ee four", " five"});
  EXPECT_EQ(out.content, "one ");
  EXPECT_EQ(out.pushed, 3);
  EXPECT_EQ(out.finish.reason, FinishReason::kStop);
  EXPECT_EQ(out.finish.matched_stop, "two three");
  EXPECT_EQ(out.finish.usage.completion_tokens, 3);
  EXPECT_EQ(out.finish.usage.prompt_tokens, 3);
  EXPECT_EQ(out.ids, (std::vector<TokenId>{0, 1, 2}));
}

TEST(OutputPipeline, StopStringsAreMatchedInContentOnly) {
  ChatJob job;
  job.stop = {"stop"};
  const Outcome out = run(job, {"<think>", "do not stop", "</think>", "yes", " stop now"});
  EXPECT_EQ(out.reasoning, "do not stop");
  EXPECT_EQ(out.content, "yes ");
}

TEST(OutputPipeline, HeldTextPrecedesAnotherChannel) {
  ChatJob job;
  job.stop = {"abc"};
  const Outcome out = run(job, {"xab", "<think>", "t", "</think>", "c"});
  EXPECT_EQ(out.content, "xabc");  // no match across the thought
  EXPECT_EQ(out.finish.matched_stop, "");
}

TEST(OutputPipeline, BeforeMinTokensAStopStringIsText) {
  ChatJob job;
  job.stop = {"x"};
  job.min_tokens = 3;
  EXPECT_EQ(run(job, {"ax", "bx", "cx", "dx"}).content, "axbxc");
}

TEST(OutputPipeline, TextReleasedAtTheEndCanStillMatch) {
  ChatJob job;
  job.stop = {"b~"};
  const Outcome out = run(job, {"a", "b~"}, FinishReason::kLength);
  EXPECT_EQ(out.content, "a");
  EXPECT_EQ(out.finish.reason, FinishReason::kStop);
  EXPECT_EQ(out.finish.matched_stop, "b~");
}

TEST(OutputPipeline, ReleasesHeldTextWhenTheLengthEndsIt) {
  ChatJob job;
  job.stop = {"abc"};
  const Outcome out = run(job, {"xab"}, FinishReason::kLength);
  EXPECT_EQ(out.content, "xab");
  EXPECT_EQ(out.finish.reason, FinishReason::kLength);
}

TEST(OutputPipeline, CountsReasoningTokensWithTheirMarkers) {
  const Outcome out = run({}, {"<think>", "a", "b", "</think>", "c", "d"});
  EXPECT_EQ(out.finish.usage.completion_tokens, 6);
  EXPECT_EQ(out.finish.usage.reasoning_tokens, 3);  // the closing marker goes with the answer
}

TEST(OutputPipeline, TheEndTokenIsCountedButNotShown) {
  OutputPipeline pipeline({}, 1, std::make_unique<FakeParser>(),
                          std::make_unique<FakeDecoder>(std::vector<std::string>{"a", "END"}));
  pipeline.push(0);
  pipeline.push_end(1);
  pipeline.finish(FinishReason::kStop);
  const TokenEvent event = pipeline.take_event(RequestId{1});
  EXPECT_EQ(event.ids, (std::vector<TokenId>{0, 1}));
  ASSERT_EQ(event.deltas.size(), 1u);
  EXPECT_EQ(event.deltas[0].text, "a");
  EXPECT_EQ(event.finish->usage.completion_tokens, 2);
}

TEST(OutputPipeline, LogprobsComeOnlyWhenAskedFor) {
  for (const int top : {-1, 0}) {
    ChatJob job;
    job.top_logprobs = top;
    OutputPipeline pipeline(job, 1, std::make_unique<FakeParser>(),
                            std::make_unique<FakeDecoder>(std::vector<std::string>{"a"}));
    pipeline.push(0, TokenLogprob{.id = 0, .logprob = -1, .bytes = "a"});
    EXPECT_EQ(pipeline.take_event(RequestId{1}).logprobs.size(), top < 0 ? 0u : 1u);
  }
}

}  // namespace
}  // namespace flotilla::engine
