// A conversation goes where its beginning is, while that saves time.
#include <gtest/gtest.h>

#include "flotilla/coordinator/routing/router_fixture.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;

class Affinity : public Routing {
 protected:
  Affinity() {
    for (const char* name : {"a", "b", "c"}) reports_prefill(join(name), 1000);
  }
  ProviderRecord& node(const std::string& name) { return *registry.find(ProviderId{name}); }
  // The turn with these beginnings was computed there.
  void was_at(const std::string& name, const RouteAsk& ask) {
    router.learn_prompt("m", ask, node(name), ask.prompt_tokens);
  }
  Route best(const RouteAsk& ask) { return router.best("m", {.ask = &ask}); }
};

TEST_F(Affinity, TheNextTurnGoesToTheNodeThatComputedTheLast) {
  was_at("b", prompt(2000, {1, 2}));
  const RouteAsk next = prompt(2400, {1, 2, 3, 4});
  const Route route = best(next);
  EXPECT_EQ(route.provider->id.value, "b");
  EXPECT_EQ(route.saved_tokens, 2000);
  EXPECT_EQ(route.prefill_tokens, 400);
  EXPECT_EQ(route.saved_prefix, 2u);
  EXPECT_EQ(best(prompt(2400, {7, 8})).saved_tokens, 0);
}

TEST_F(Affinity, ItStaysThereWhileOthersAreLessLoaded) {
  was_at("b", prompt(2000, {1, 2}));
  for (int i = 0; i < 3; ++i) node("b").slots.at("m").num_attempts++;
  registry.reindex(node("b"), "m");
  EXPECT_EQ(best(prompt(2400, {1, 2, 3})).provider->id.value, "b");
}

TEST_F(Affinity, UnlessItsTimeIsWorseByMoreThanIsSaved) {
  was_at("b", prompt(2000, {1, 2}));
  const RouteAsk next = prompt(2400, {1, 2, 3});
  // Two seconds are saved; so much may be ahead there, and no more.
  node("b").slots.at("m").prefill_tokens = 1900;
  registry.reindex(node("b"), "m");
  EXPECT_EQ(best(next).provider->id.value, "b");
  node("b").slots.at("m").prefill_tokens = 2100;
  registry.reindex(node("b"), "m");
  EXPECT_NE(best(next).provider->id.value, "b");
  EXPECT_EQ(best(next).saved_tokens, 0);
}

TEST_F(Affinity, ItIsOfNoUseWithoutASlotOrAfterExclusion) {
  was_at("b", prompt(2000, {1, 2}));
  const RouteAsk next = prompt(2400, {1, 2, 3});
  const std::vector<ProviderId> excluded{ProviderId{"b"}};
  EXPECT_NE(router.best("m", {.excluded = excluded, .ask = &next}).provider->id.value, "b");
  node("b").slots.at("m").num_attempts = 4;
  registry.reindex(node("b"), "m");
  EXPECT_NE(best(next).provider->id.value, "b");
  registry.remove(ProviderId{"b"});
  EXPECT_NE(best(next).provider->id.value, "b");
}

TEST_F(Affinity, TheLongestBeginningWins) {
  was_at("a", prompt(500, {1}));
  was_at("b", prompt(2000, {1, 2}));
  EXPECT_EQ(best(prompt(2400, {1, 2, 3})).provider->id.value, "b");
}

TEST_F(Affinity, WhatManyHaveInCommonIsKnownOfEveryNodeThatHasIt) {
  was_at("a", prompt(1000, {1, 2}));  // half of it is the system's message
  const Route route = best(prompt(1000, {1, 9}));
  EXPECT_EQ(route.provider->id.value, "a");
  EXPECT_EQ(route.saved_tokens, 500);
}

TEST_F(Affinity, ItIsForgottenAfterTenMinutesAndWhenItProvedWrong) {
  was_at("b", prompt(2000, {1, 2}));
  const RouteAsk next = prompt(2400, {1, 2, 3});
  Router::Outcome missed;
  missed.saved_tokens = 2000;
  missed.saved_prefix = 2;
  router.learn_outcome(node("b"), "m", missed);
  EXPECT_LT(best(next).saved_tokens, 2000);
  was_at("b", prompt(2000, {1, 2}));
  EXPECT_EQ(best(next).saved_tokens, 2000);
  clock.advance(10min);
  EXPECT_EQ(best(next).saved_tokens, 0);
}

TEST_F(Affinity, ThePrefixTableIsBounded) {
  PrefixTable table({.max_entries = 100});
  for (std::uint64_t i = 0; i < 1000; ++i) table.note(i, ProviderId{"a"}, 10, clock.now());
  EXPECT_EQ(table.size(), 100u);
  for (int i = 0; i < 10; ++i)
    table.note(999, ProviderId{"n" + std::to_string(i)}, 10, clock.now() + i * 1s);
  std::vector<std::string> holders;
  const Prefix prefix{999, 1};
  table.visit({&prefix, 1}, clock.now() + 10s, [&](const PrefixTable::Holder& h, const Prefix&) {
    holders.push_back(h.provider.value);
    return true;
  });
  std::sort(holders.begin(), holders.end());
  EXPECT_EQ(holders, (std::vector<std::string>{"n6", "n7", "n8", "n9"}));
}

}  // namespace
}  // namespace flotilla::coordinator
