#include "flotilla/gates/judge.h"

#include <gtest/gtest.h>

#include <random>

#include "flotilla/gates/test_models.h"

namespace flotilla::gates {
namespace {

constexpr Modes kOn{Mode::kOn, Mode::kOn, Mode::kOn};
constexpr Modes kShadow{};
const Ask kJob{.prompt_tokens = 500, .max_tokens = 256};

SlotFacts cold() { return {}; }
SlotFacts resident(std::uint32_t max_jobs = 4) {
  SlotFacts slot;
  slot.resident = true;
  slot.max_jobs = max_jobs;
  slot.context_length = 262'144;
  return slot;
}

// Counts of candidates that could serve after a load, of those that are full, and of those that are
// too small, over nodes that do not hold the model.
struct Scan {
  int loadable = 0, full = 0, too_large = 0;
};
Scan scan(const ModelFacts& model, const std::vector<NodeFacts>& nodes) {
  Scan out;
  for (const NodeFacts& node : nodes) {
    switch (judge(node, cold(), model, kJob, kOn).reason) {
      case Reason::kNotLoaded:
        ++out.loadable;
        break;
      case Reason::kTooLarge:
        ++out.too_large;
        break;
      default:
        ++out.full;
    }
  }
  return out;
}

TEST(Judge, TheResidentModelIsTooLargeFor24AndColdLoadableFrom32To128) {
  for (const bool headers_read : {false, true}) {
    const ModelFacts model = flagship(headers_read);
    Scan small = scan(model, {idle_node(24)});
    EXPECT_EQ(small.loadable + small.full, 0);
    EXPECT_EQ(small.too_large, 1);
    for (const std::uint64_t memory : {32, 36, 48, 64, 96, 128}) {
      const Scan one = scan(model, {idle_node(memory)});
      EXPECT_EQ(one.loadable, 1) << memory;
      EXPECT_EQ(one.full + one.too_large, 0) << memory;
    }
  }
}

TEST(Judge, TheGatesAgreeAtTheFloor) {
  ModelFacts model = flagship();
  EXPECT_FALSE(load_gate(idle_node(24), cold(), model).admitted());
  EXPECT_FALSE(hardware_gate(idle_node(24), cold(), model).admitted());
  EXPECT_TRUE(load_gate(idle_node(32), cold(), model).admitted());
  EXPECT_TRUE(hardware_gate(idle_node(32), cold(), model).admitted());
}

TEST(Judge, AModelFromDiskFitsByWhatIsResidentNotByWhatIsOnDisk) {
  for (const std::uint64_t memory : {24, 32, 36, 48, 64, 96, 128}) {
    const NodeFacts node = idle_node(memory);
    // With its size on disk no machine takes it, though the catalog's smallest machine is 36.
    ModelFacts whole = streamed(141);
    const Verdict on_disk = judge(node, cold(), whole, kJob, kOn);
    EXPECT_EQ(on_disk.reason, memory < 36 ? Reason::kTooLarge : Reason::kNoRoomToLoad) << memory;
    EXPECT_EQ(cold_tokens(whole.size, whole.state, node.memory_bytes), 0);
    const Verdict listed = judge(node, cold(), streamed(16), kJob, kOn);
    EXPECT_EQ(listed.reason, memory < 36 ? Reason::kTooLarge : Reason::kNotLoaded) << memory;
  }
}

TEST(Judge, AFreeForLoadFigureIsBelievedWhateverTheMachineHas) {
  const ModelFacts model = flagship();
  NodeFacts node = idle_node(128);
  node.free_for_load = 10 * kGiB;
  const Verdict verdict = judge(node, cold(), model, kJob, kOn);
  EXPECT_EQ(verdict.reason, Reason::kNoRoomToLoad);
  EXPECT_EQ(verdict.available, 10 * kGiB);
  EXPECT_EQ(verdict.needed, need_to_load(model.size));
  EXPECT_FALSE(is_permanent(verdict.reason));
  node.free_for_load = 0;  // reported, and nothing
  EXPECT_EQ(judge(node, cold(), model, kJob, kOn).reason, Reason::kNoRoomToLoad);
  // What idle models hold can be had.
  node.idle_resident_bytes = 40 * kGiB;
  EXPECT_EQ(judge(node, cold(), model, kJob, kOn).reason, Reason::kNotLoaded);
  node.free_for_load.reset();
  node.idle_resident_bytes = 0;
  EXPECT_EQ(judge(node, cold(), model, kJob, kOn).reason, Reason::kNotLoaded);
}

TEST(Judge, AResidentModelHasProvedThatItFits) {
  EXPECT_TRUE(judge(idle_node(24), resident(), flagship(), kJob, kOn).admitted());
}

TEST(Judge, SlotsAreCounted) {
  SlotFacts slot = resident(2);
  slot.num_jobs = 1;
  EXPECT_TRUE(judge(idle_node(64), slot, flagship(), kJob, kOn).admitted());
  slot.num_jobs = 2;
  slot.slot_free_in = milliseconds(700);
  const Verdict full = judge(idle_node(64), slot, flagship(), kJob, kOn);
  EXPECT_EQ(full.reason, Reason::kNoSlot);
  EXPECT_EQ(full.changes_in, milliseconds(700));
  EXPECT_EQ(full.available, 2u);
}

TEST(Judge, StateIsComparedInBytes) {
  SlotFacts slot = resident();
  slot.state_total = 4 * kGiB;
  EXPECT_TRUE(judge(idle_node(64), slot, flagship(), kJob, kOn).admitted());
  slot.state_used = 4 * kGiB - 1;
  const Verdict full = judge(idle_node(64), slot, flagship(), kJob, kOn);
  EXPECT_EQ(full.reason, Reason::kNoStateMemory);
  EXPECT_EQ(full.needed, 756u * 901'120);
  EXPECT_EQ(full.available, 1u);
  // Beyond all that there is: waiting does not help.
  const Ask huge{.prompt_tokens = 200'000, .max_tokens = 10};
  EXPECT_EQ(judge(idle_node(64), slot, flagship(), huge, kOn).reason, Reason::kTooLong);
  const Ask beyond{.prompt_tokens = 262'145, .max_tokens = 1};
  const Verdict too_long = judge(idle_node(64), slot, flagship(), beyond, kOn);
  EXPECT_EQ(too_long.reason, Reason::kTooLong);
  EXPECT_EQ(too_long.available, 262'144u);
  // A guess may be wrong: the node, which counts, is asked; when it is busy the job waits.
  for (Ask guess : {huge, beyond}) {
    guess.exact = false;
    EXPECT_EQ(judge(idle_node(64), slot, flagship(), guess, kOn).reason, Reason::kNoStateMemory);
    SlotFacts idle = slot;
    idle.state_used = 0;
    EXPECT_TRUE(judge(idle_node(64), idle, flagship(), guess, kOn).admitted());
  }
}

TEST(Judge, InShadowNothingIsRefusedAndTheFirstRefusalIsTold) {
  const Verdict small = judge(idle_node(24), cold(), flagship(), kJob, kShadow);
  EXPECT_EQ(small.reason, Reason::kNotLoaded);
  EXPECT_EQ(small.shadow, Reason::kTooLarge);
  SlotFacts slot = resident();
  slot.state_total = kGiB;
  slot.state_used = kGiB;
  const Verdict full = judge(idle_node(64), slot, flagship(), kJob, kShadow);
  EXPECT_TRUE(full.admitted());
  EXPECT_EQ(full.shadow, Reason::kNoStateMemory);
  const Modes off{Mode::kOff, Mode::kOff, Mode::kOff};
  EXPECT_EQ(judge(idle_node(64), slot, flagship(), kJob, off).shadow, Reason::kNone);
}

TEST(Judge, FaultsCountBeforeWhatTheMachineIs) {
  NodeFacts node = idle_node(24);
  node.cooldown = milliseconds(400);
  node.silent = node.draining = true;
  SlotFacts slot = cold();
  slot.healthy = false;
  const Verdict verdict = judge(node, slot, flagship(), kJob, kOn);
  EXPECT_EQ(verdict.reason, Reason::kCooldown);
  EXPECT_EQ(verdict.changes_in, milliseconds(400));
}

// Whatever the facts: one reason, the first in the list that applies; a stricter mode never lets
// more through; what shadow lets through it names.
TEST(Judge, EveryNodeHasOneReasonAndModesOnlyTakeAway) {
  std::mt19937 random(3);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const auto coin = [&](unsigned n) { return below(n) == 0; };
  ReasonCounts seen{};
  for (int i = 0; i < 50'000; ++i) {
    NodeFacts node = idle_node(16 + below(64));
    if (coin(2)) node.free_for_load = (below(64)) * kGiB;
    if (coin(9)) node.free_for_load.reset();
    node.silent = coin(20);
    node.draining = coin(20);
    if (coin(20)) node.cooldown = milliseconds(1 + below(100));
    SlotFacts slot = coin(2) ? resident(1 + below(4)) : cold();
    slot.listed = !coin(30);
    slot.loading = coin(9);
    slot.healthy = !coin(20);
    slot.stuck = coin(20);
    slot.other_version = coin(20);
    slot.num_jobs = below(5);
    if (coin(9)) slot.refused_for = milliseconds(10);
    if (coin(2)) slot.state_total = (1 + below(8)) * kGiB;
    slot.state_used = (below(8)) * kGiB;
    Ask ask{.tried = coin(20), .other_weights = coin(20)};
    ask.prompt_tokens = below(300'000);
    ask.max_tokens = below(4'000);
    const ModelFacts model = coin(2) ? flagship(coin(2)) : streamed(coin(2) ? 141 : 16);
    const Verdict on = judge(node, slot, model, ask, kOn);
    const Verdict shadow = judge(node, slot, model, ask, kShadow);
    ++count_of(seen, on.reason);
    ASSERT_EQ(on.shadow, Reason::kNone);
    if (on.admitted()) {
      ASSERT_TRUE(shadow.admitted());
      ASSERT_EQ(shadow.shadow, Reason::kNone);
    }
    if (on.reason != shadow.reason) {
      ASSERT_EQ(shadow.shadow, on.reason);
      ASSERT_TRUE(on.reason == Reason::kTooLarge || on.reason == Reason::kTooLong ||
                  on.reason == Reason::kNoStateMemory || on.reason == Reason::kNoRoomToLoad);
    }
    if (shadow.admitted()) {
      ASSERT_TRUE(slot.listed && slot.resident && slot.healthy && !slot.stuck && !node.silent &&
                  !node.draining && slot.num_jobs < slot.max_jobs && !ask.tried &&
                  !slot.other_version);
    }
  }
  for (std::size_t i = 0; i < kNumReasons; ++i)
    EXPECT_GT(seen[i], 0u) << to_string(static_cast<Reason>(i));
}

TEST(Outlook, WaitingHelpsUnlessEveryNodeIsOutForGood) {
  OutlookOf nodes;
  nodes.add(judge(idle_node(24), cold(), flagship(), kJob, kOn));
  EXPECT_TRUE(nodes.get().permanent);
  SlotFacts none;
  none.listed = false;
  nodes.add(judge(idle_node(64), none, flagship(), kJob, kOn));
  EXPECT_TRUE(nodes.get().permanent);  // it does not have the model
  SlotFacts full = resident(1);
  full.num_jobs = 1;
  full.slot_free_in = milliseconds(900);
  nodes.add(judge(idle_node(64), full, flagship(), kJob, kOn));
  full.slot_free_in = milliseconds(300);
  nodes.add(judge(idle_node(64), full, flagship(), kJob, kOn));
  EXPECT_FALSE(nodes.get().permanent);
  EXPECT_EQ(nodes.get().retry_in, milliseconds(300));
  EXPECT_EQ(count_of(nodes.counts(), Reason::kTooLarge), 1u);
  EXPECT_EQ(count_of(nodes.counts(), Reason::kNoSlot), 2u);
}

}  // namespace
}  // namespace flotilla::gates
