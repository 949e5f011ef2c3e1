// The expected time to first content decides.
#include <gtest/gtest.h>

#include <map>

#include "flotilla/coordinator/routing/router_fixture.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;

TEST_F(Routing, TheNodeThatReadsThePromptSoonestGetsIt) {
  reports_prefill(join("slow"), 100);
  reports_prefill(join("fast"), 1000);
  EXPECT_EQ(take(prompt(2000)), "fast");
}

TEST_F(Routing, WhatIsSoonestDependsOnTheLengthOfThePrompt) {
  // One has a short line, the other a fast card.
  ProviderRecord& near = join("near");
  ProviderRecord& strong = join("strong");
  near.round_trip.add(0.001, clock.now());
  strong.round_trip.add(0.4, clock.now());
  reports_prefill(near, 1000);
  reports_prefill(strong, 10'000);
  const RouteAsk little = prompt(50), much = prompt(8000);
  EXPECT_EQ(router.best("m", {.ask = &little}).provider->id.value, "near");
  EXPECT_EQ(router.best("m", {.ask = &much}).provider->id.value, "strong");
}

TEST_F(Routing, PromptsThatAreAheadCount) {
  reports_prefill(join("a"), 1000);
  reports_prefill(join("b"), 1000);
  const RouteAsk long_one = prompt(5000), short_one = prompt(100);
  const std::string first = take(long_one), other = first == "a" ? "b" : "a";
  // Five seconds of work are ahead there; it goes on elsewhere until those are done.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(take(short_one), other);
  router.prefill_done(*registry.find(ProviderId{first}), "m", 5000);
  EXPECT_EQ(take(short_one), first);
}

TEST_F(Routing, AmongEqualsTheLeastLoadedThenTheOneOfLongestAgo) {
  for (int i = 0; i < 4; ++i) {
    ProviderRecord& node = join("n" + std::to_string(i), i == 0 ? 8 : 4);
    node.round_trip.add(0.001 * (1 + i), clock.now());
    reports_prefill(node, 5000 + 100 * i);
  }
  std::map<std::string, int> picks;
  for (int i = 0; i < 10; ++i) ++picks[take(prompt(1))];
  EXPECT_EQ(picks["n0"], 4);  // twice the slots
  EXPECT_EQ(picks["n1"] + picks["n2"] + picks["n3"], 6);
  for (const char* name : {"n1", "n2", "n3"}) EXPECT_EQ(picks[name], 2) << name;
}

TEST_F(Routing, MeasurementsOfOutcomesMoveTheChoice) {
  ProviderRecord& a = join("a");
  join("b");
  Router::Outcome slow;
  slow.first_seconds = 20;
  slow.computed_tokens = 1000;
  router.learn_outcome(a, "m", slow);
  EXPECT_EQ(take(prompt(1000)), "b");
  // What nobody has measured is expected to be as the fleet is.
  const RouteAsk ask = prompt(1000);
  EXPECT_EQ(router.expect(*registry.find(ProviderId{"b"}), "m", {.ask = &ask}).time.prefill.source,
            Source::kFleet);
}

TEST_F(Routing, TheStateGateOnKeepsAJobFromANodeAndInShadowOnlyTells) {
  Router strict(registry, clock, {.state = gates::Mode::kOn});
  ProviderRecord& full = join("full");
  join("free");
  ModelSlot& slot = full.slots.at("m");
  slot.facts.state = {.fixed_bytes = 0, .classes = {{1000, 0}}};
  slot.load.kv_bytes_total = 1'000'000;
  slot.load.kv_bytes_used = 950'000;
  reports_prefill(full, 100'000);  // much the fastest
  const RouteAsk ask = prompt(500);
  EXPECT_EQ(strict.best("m", {.ask = &ask}).provider->id.value, "free");
  const Route shadow = router.best("m", {.ask = &ask});
  EXPECT_EQ(shadow.provider->id.value, "full");
  EXPECT_EQ(shadow.shadow, gates::Reason::kNoStateMemory);
}

// Bytes divided by what a token usually has: half of it may be wrong.
TEST_F(Routing, AGuessedLengthIsNoReasonToRefuseForGood) {
  Router strict(registry, clock, {.state = gates::Mode::kOn});
  join("small").slots.at("m").offer.context_length = 1000;
  RouteAsk guessed = prompt(1001);
  guessed.prompt_tokens = 0;
  guessed.prompt_bytes = 8'000;
  EXPECT_FALSE(strict.hopeless("m", {.ask = &guessed}));
  for (const Router* any : {&strict, &router})
    EXPECT_EQ(any->best("m", {.ask = &guessed}).provider->id.value, "small");
  // But a node with more room comes first.
  join("large").slots.at("m").offer.context_length = 10'000;
  for (const Router* any : {&strict, &router})
    EXPECT_EQ(any->best("m", {.ask = &guessed}).provider->id.value, "large");
}

TEST_F(Routing, WhenNoNodeCanEverTakeItThatIsSaidAtOnce) {
  Router strict(registry, clock, {.state = gates::Mode::kOn});
  for (const char* name : {"a", "b"}) join(name).slots.at("m").offer.context_length = 1000;
  const RouteAsk fits = prompt(900), beyond = prompt(1001);
  EXPECT_FALSE(strict.hopeless("m", {.ask = &fits}));
  const auto verdict = strict.hopeless("m", {.ask = &beyond});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->reason, gates::Reason::kTooLong);
  EXPECT_EQ(verdict->available, 1000u);
  EXPECT_FALSE(router.hopeless("m", {.ask = &beyond}));  // in shadow
  EXPECT_FALSE(strict.hopeless("unknown", {.ask = &beyond}));
}

TEST_F(Routing, EveryNodeIsACandidateOrHasOneReason) {
  join("free");
  ProviderRecord& full = join("full", 1);
  full.slots.at("m").num_attempts = 1;
  full.slots.at("m").history.job_seconds.add(2, clock.now());
  registry.reindex(full, "m");
  join("other", 1, {"x"});
  ProviderRecord& silent = join("silent");
  silent.silent = true;
  registry.reindex_all(silent);
  const gates::OutlookOf outlook = router.outlook("m", {});
  EXPECT_EQ(count_of(outlook.counts(), gates::Reason::kNone), 1u);
  EXPECT_EQ(count_of(outlook.counts(), gates::Reason::kNoSlot), 1u);
  EXPECT_EQ(count_of(outlook.counts(), gates::Reason::kSilent), 1u);
  EXPECT_EQ(outlook.get().retry_in, 2000ms);
}

}  // namespace
}  // namespace flotilla::coordinator
