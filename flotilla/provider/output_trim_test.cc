#include "flotilla/provider/output_trim.h"

#include <gtest/gtest.h>

#include "flotilla/base/text.h"
#include "flotilla/provider/tokens_split.h"

namespace flotilla::provider {
namespace {

using chat::Channel;

engine::TokenEvent event_of(std::uint32_t first, std::vector<TokenId> ids,
                            std::vector<chat::OutputDelta> deltas) {
  engine::TokenEvent event;
  event.first_index = first;
  event.ids = std::move(ids);
  event.deltas = std::move(deltas);
  return event;
}

TEST(OutputTrim, ChangesNothingWhenNothingWasEmitted) {
  OutputTrim trim({}, 0);
  auto event = event_of(0, {1, 2}, {{Channel::kContent, "ab"}, {Channel::kToolCall, "", 0, "f"}});
  trim.apply(event);
  EXPECT_EQ(event.ids.size(), 2u);
  EXPECT_EQ(event.deltas.size(), 2u);
  EXPECT_EQ(trim.remaining(), 0u);
}

TEST(OutputTrim, RemovesDeliveredIdsAndTextByChannelHoweverTheEventsAreCut) {
  for (std::size_t cut = 0; cut <= 6; ++cut) {
    OutputTrim trim({.content = 4, .reasoning = 2, .tool_calls = {3}}, 3);
    const std::string content = "abcdef";
    auto first = event_of(
        0, {10, 11}, {{Channel::kReasoning, "xyz"}, {Channel::kContent, content.substr(0, cut)}});
    auto second = event_of(2, {12, 13, 14},
                           {{Channel::kContent, content.substr(cut)},
                            {Channel::kToolCall, "{\"a\":1}", 0, "f"},
                            {Channel::kToolCall, "{}", 1, "g"}});
    second.logprobs = {{13, -1, "a"}, {14, -1, "b"}};
    trim.apply(first);
    trim.apply(second);
    std::string text, reasoning, arguments, names;
    for (const auto* event : {&first, &second}) {
      for (const auto& delta : event->deltas) {
        (delta.channel == Channel::kContent     ? text
         : delta.channel == Channel::kReasoning ? reasoning
                                                : arguments) += delta.text;
        names += delta.call_name;
      }
    }
    EXPECT_EQ(text, "ef");
    EXPECT_EQ(reasoning, "z");
    EXPECT_EQ(arguments, "\":1}{}");
    EXPECT_EQ(names, "g") << "a call that had begun is not begun again";
    EXPECT_TRUE(first.ids.empty());
    EXPECT_EQ(second.ids, (std::vector<TokenId>{13, 14}));
    EXPECT_EQ(second.first_index, 3u);
    EXPECT_EQ(second.logprobs.size(), 2u);
    EXPECT_EQ(trim.remaining(), 0u);
  }
}

TEST(OutputTrim, KnowsWhenTheOutputWasShorterThanWhatWasDelivered) {
  OutputTrim trim({.content = 4, .reasoning = 0, .tool_calls = {}}, 1);
  auto event = event_of(0, {1}, {{Channel::kContent, "ab"}});
  trim.apply(event);
  EXPECT_EQ(trim.remaining(), 2u);
}

TEST(SplitToLimits, GivesOneFrameForAStepAndNoneForNothing) {
  EXPECT_TRUE(split_to_limits({}).empty());
  const auto frames =
      split_to_limits({.first_index = 5, .ids = {1, 2}, .deltas = {{.text = "ab"}}});
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].first_index, 5u);
  EXPECT_EQ(frames[0].deltas.size(), 1u);
  EXPECT_EQ(split_to_limits({.first_index = 5, .deltas = {{.text = "ab"}}}).at(0).first_index, 5u);
}

TEST(SplitToLimits, CutsLongOutputBetweenCharactersAndLosesNothing) {
  protocol::Tokens tokens{.first_index = 7};
  for (TokenId id = 0; id < 50'000; ++id) tokens.ids.push_back(id);
  std::string text;
  while (text.size() < (3u << 20)) text += "\xF0\x9F\x98\x80x";
  tokens.deltas = {{.channel = protocol::TextChannel::kToolCall,
                    .text = text,
                    .call_index = 2,
                    .call_id = "id",
                    .call_name = "f"}};
  for (int i = 0; i < 5'000; ++i) tokens.deltas.push_back({.text = "y"});
  std::vector<TokenId> ids;
  std::string joined, names;
  std::uint64_t next = 7;
  for (const protocol::Tokens& frame : split_to_limits(tokens)) {
    EXPECT_EQ(frame.first_index, next);
    next += frame.ids.size();
    ids.insert(ids.end(), frame.ids.begin(), frame.ids.end());
    EXPECT_LE(frame.ids.size(), protocol::Tokens::kMaxIds);
    EXPECT_LE(frame.deltas.size(), protocol::Tokens::kMaxDeltas);
    for (const auto& delta : frame.deltas) {
      EXPECT_LE(delta.text.size(), protocol::Tokens::kMaxText);
      EXPECT_TRUE(is_valid_utf8(delta.text));
      joined += delta.text;
      names += delta.call_name + delta.call_id;
    }
  }
  EXPECT_EQ(ids, tokens.ids);
  EXPECT_EQ(joined, text + std::string(5'000, 'y'));
  EXPECT_EQ(names, "fid");
}

TEST(SplitToLimits, KeepsLogprobsBesideTheirIds) {
  protocol::Tokens tokens;
  for (TokenId id = 0; id < 200; ++id) {
    tokens.ids.push_back(id);
    tokens.logprobs.push_back({.id = id, .logprob = -1});
  }
  std::size_t seen = 0;
  for (const protocol::Tokens& frame : split_to_limits(tokens)) {
    ASSERT_EQ(frame.ids.size(), frame.logprobs.size());
    for (std::size_t i = 0; i < frame.ids.size(); ++i)
      EXPECT_EQ(frame.ids[i], frame.logprobs[i].id);
    seen += frame.ids.size();
  }
  EXPECT_EQ(seen, 200u);
}

}  // namespace
}  // namespace flotilla::provider
