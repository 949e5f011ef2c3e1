#include "flotilla/coordinator/routing/warm_pool.h"

#include "flotilla/coordinator/routing/router_fixture.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;
using gates::kGiB;
using What = WarmOrder::What;

class Warm : public Routing {
 protected:
  // A node with so much free memory, and these models, each of so many GiB.
  struct Model {
    std::string name;
    std::uint64_t gib;
    bool loaded;
  };
  ProviderRecord& node(const std::string& name, std::uint64_t free_gib,
                       const std::vector<Model>& models, std::uint64_t usable_gib = 60) {
    auto record = std::make_unique<ProviderRecord>();
    record->id = ProviderId{name};
    record->node = name;
    record->link = std::make_shared<SilentLink>();
    record->hardware.memory_cap_bytes = usable_gib * kGiB;
    record->free_bytes = free_gib * kGiB;
    ProviderRecord& provider = registry.add(std::move(record));
    std::vector<protocol::ModelOffer> offers;
    for (const Model& model : models) {
      protocol::ModelOffer offer;
      offer.id = model.name;
      offer.resident_bytes = model.gib * kGiB;
      offer.loaded = model.loaded;
      offer.max_concurrent = 4;
      offers.push_back(offer);
    }
    registry.set_models(provider, offers);
    return provider;
  }
  std::vector<std::string> plan(const std::string& model, std::size_t num_queued = 1) {
    const Wanted wanted{model, num_queued};
    std::vector<std::string> out;
    for (const WarmOrder& order : pool.plan({&wanted, 1})) {
      out.push_back((order.what == What::kLoad ? "load " : "unload ") + order.model + " on " +
                    order.provider->id.value);
    }
    return out;
  }
  void status(ProviderRecord& provider, const std::string& model, protocol::ModelState state,
              std::optional<Error> error = {}) {
    pool.on_status(provider, model, state, error ? &*error : nullptr);
    provider.slots.at(model).offer.loaded = state == protocol::ModelState::kLoaded;
    registry.reindex(provider, model);
  }

  WarmPool pool{registry, router, clock, {.mode = WarmMode::kSwap}};
  using Orders = std::vector<std::string>;
};

TEST_F(Warm, ColdSpillGoesToAnIdleNodeThatHasTheFilesAndTheRoom) {
  node("small", 8, {{"m", 20, false}});
  node("other", 50, {{"x", 5, false}});
  ProviderRecord& busy = node("busy", 50, {{"m", 20, false}});
  busy.jobs.insert(JobId{});
  node("fits", 30, {{"m", 20, false}});
  EXPECT_TRUE(pool.may_load("m"));
  EXPECT_EQ(plan("m"), Orders{"load m on fits"});
  // One load of a model at a time.
  EXPECT_EQ(plan("m"), Orders{});
}

TEST_F(Warm, NothingIsLoadedWhereANodeServesItOrCannotEver) {
  ProviderRecord& warm = node("warm", 50, {{"m", 20, true}});
  ProviderRecord& cold = node("cold", 50, {{"m", 20, false}});
  EXPECT_EQ(plan("m", 3), Orders{});
  warm.draining = true;
  registry.reindex_all(warm);
  cold.silent = true;
  EXPECT_EQ(plan("m"), Orders{});
  cold.silent = false;
  EXPECT_EQ(plan("m"), Orders{"load m on cold"});
  EXPECT_EQ(plan("unknown"), Orders{});
}

TEST_F(Warm, ALongQueueIsWorthAnotherCopy) {
  ProviderRecord& warm = node("warm", 50, {{"m", 20, true}});
  warm.slots.at("m").history.job_seconds.add(10, clock.now());
  node("cold", 50, {{"m", 20, false}});
  // Four slots of ten seconds: a load of 23 s pays when more than twice that is waited.
  EXPECT_EQ(plan("m", 10), Orders{});
  EXPECT_EQ(plan("m", 30), Orders{"load m on cold"});
}

TEST_F(Warm, ANodeLoadsOneModelAtATime) {
  node("a", 50, {{"m", 5, false}, {"n", 5, false}});
  EXPECT_EQ(plan("m"), Orders{"load m on a"});
  EXPECT_EQ(plan("n"), Orders{});
  status(*registry.find(ProviderId{"a"}), "m", protocol::ModelState::kLoaded);
  EXPECT_EQ(plan("n"), Orders{"load n on a"});
}

TEST_F(Warm, HowLongALoadTookIsRemembered) {
  ProviderRecord& a = node("a", 50, {{"m", 5, false}});
  plan("m");
  clock.advance(7s);
  status(a, "m", protocol::ModelState::kLoaded);
  EXPECT_DOUBLE_EQ(a.slots.at("m").history.load_seconds.value, 7);
}

TEST_F(Warm, APairThatFailedIsLeftAloneForTwoMinutesOrHalfOfOne) {
  ProviderRecord& a = node("a", 50, {{"m", 5, false}});
  EXPECT_EQ(plan("m").size(), 1u);
  status(a, "m", protocol::ModelState::kFailed, Error{ErrorCode::kDataLoss, "bad shard"});
  clock.advance(119s);
  EXPECT_EQ(plan("m"), Orders{});
  clock.advance(1s);
  EXPECT_EQ(plan("m").size(), 1u);
  status(a, "m", protocol::ModelState::kFailed, Error{ErrorCode::kResourceExhausted, "no room"});
  clock.advance(29s);
  EXPECT_EQ(plan("m"), Orders{});
  clock.advance(1s);
  EXPECT_EQ(plan("m").size(), 1u);
  // A load without an answer is not waited for without end.
  clock.advance(11min);
  EXPECT_EQ(plan("m").size(), 1u);
}

TEST_F(Warm, TheModelThatIsMissedLeastMakesRoom) {
  ProviderRecord& a = node("a", 2, {{"often", 20, true}, {"seldom", 20, true}, {"m", 20, false}});
  clock.advance(2min);
  for (int i = 0; i < 20; ++i) pool.note_demand("often");
  pool.note_demand("seldom");
  EXPECT_EQ(plan("m", 5), Orders{"unload seldom on a"});
  EXPECT_FALSE(a.slots.at("seldom").offer.loaded);  // nothing more is given to it
  // Its memory comes back with a heartbeat; until then nothing else goes.
  EXPECT_EQ(plan("m", 5), Orders{});
  a.free_bytes = 22 * kGiB;
  EXPECT_EQ(plan("m", 5), Orders{"load m on a"});
}

TEST_F(Warm, AVictimThatIsMissedMoreThanTheNewOneStays) {
  node("a", 2, {{"often", 20, true}, {"m", 20, false}});
  clock.advance(2min);
  for (int i = 0; i < 20; ++i) pool.note_demand("often");
  EXPECT_EQ(plan("m", 1), Orders{});
  EXPECT_EQ(plan("m", 50), Orders{"unload often on a"});
}

TEST_F(Warm, ACopyThatOthersHaveTooIsMissedLess) {
  node("a", 2, {{"often", 20, true}, {"m", 20, false}});
  for (int i = 0; i < 9; ++i) node("b" + std::to_string(i), 0, {{"often", 20, true}});
  clock.advance(2min);
  for (int i = 0; i < 20; ++i) pool.note_demand("often");
  EXPECT_EQ(plan("m", 5), Orders{"unload often on a"});
}

TEST_F(Warm, WhatWorksOrHasJustComeIsNoVictim) {
  ProviderRecord& a = node("a", 2, {{"works", 20, true}, {"m", 20, false}});
  a.slots.at("works").num_attempts = 1;
  EXPECT_EQ(plan("m", 50), Orders{});
  a.slots.at("works").num_attempts = 0;
  status(a, "works", protocol::ModelState::kLoaded);
  clock.advance(59s);
  EXPECT_EQ(plan("m", 50), Orders{});
  clock.advance(1s);
  EXPECT_EQ(plan("m", 50), Orders{"unload works on a"});
}

TEST_F(Warm, WithoutSwapsNothingIsUnloadedAndOffDoesNothing) {
  node("a", 2, {{"idle", 20, true}, {"m", 20, false}});
  clock.advance(2min);
  const Wanted wanted{"m", 50};
  WarmPool off(registry, router, clock, {.mode = WarmMode::kOff});
  EXPECT_TRUE(off.plan({&wanted, 1}).empty());
  EXPECT_FALSE(off.may_load("m"));
  // While the numbers are on trial the node is asked, and knows better.
  WarmPool loads(registry, router, clock, {.mode = WarmMode::kLoad});
  const auto orders = loads.plan({&wanted, 1});
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].what, What::kLoad);
  Router strict(registry, clock, {.load = gates::Mode::kOn});
  registry.find(ProviderId{"a"})->slots.at("m").loading_since.reset();
  WarmPool believing(registry, strict, clock, {.mode = WarmMode::kLoad});
  EXPECT_TRUE(believing.plan({&wanted, 1}).empty());
}

TEST_F(Warm, TheFleetDoesNotLoadEverythingAtOnce) {
  std::vector<Wanted> wanted;
  for (int i = 0; i < 40; ++i) {
    const std::string model = "m" + std::to_string(i);
    node("n" + std::to_string(i), 50, {{model, 5, false}});
    wanted.push_back({model, 1});
  }
  EXPECT_EQ(pool.plan(wanted).size(), 16u);
}

TEST(Demand, FadesWithinMinutes) {
  Demand demand;
  const Clock::Instant now = Clock::Instant{} + 1h;
  for (int i = 0; i < 30; ++i) demand.note("m", now + i * 10s);
  // One in ten seconds.
  EXPECT_NEAR(demand.per_second("m", now + 300s), 0.065, 0.01);
  EXPECT_LT(demand.per_second("m", now + 30min), 0.001);
  EXPECT_EQ(demand.per_second("other", now), 0);
}

}  // namespace
}  // namespace flotilla::coordinator
