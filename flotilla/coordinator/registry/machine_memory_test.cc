#include "flotilla/coordinator/registry/machine_memory.h"

#include <gtest/gtest.h>

#include "flotilla/coordinator/registry/model_table.h"
#include "flotilla/coordinator/schema.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;

const ProviderId kBox{"box"};

TEST(MachineMemory, TheCooldownDoublesUpToALimit) {
  MachineMemory memory;
  const Clock::Instant now{};
  EXPECT_EQ(memory.cooldown(kBox, now), 0ms);
  auto expected = 250ms;
  for (int i = 0; i < 40; ++i) {
    memory.fault(kBox, now);
    EXPECT_EQ(memory.cooldown(kBox, now), expected);
    expected = std::min(expected * 2, std::chrono::milliseconds(60'000));
  }
  EXPECT_EQ(memory.cooldown(ProviderId{"other"}, now), 0ms);
}

TEST(MachineMemory, SuccessAndTimeForgive) {
  MachineMemory memory;
  const Clock::Instant now{};
  for (int i = 0; i < 5; ++i) memory.fault(kBox, now);
  memory.success(kBox);
  EXPECT_EQ(memory.cooldown(kBox, now), 0ms);
  for (int i = 0; i < 5; ++i) memory.fault(kBox, now);
  EXPECT_EQ(memory.cooldown(kBox, now + 10min), 0ms);
  memory.fault(kBox, now + 10min);
  EXPECT_EQ(memory.cooldown(kBox, now + 10min), 250ms);
}

TEST(MachineMemory, ForgetsTheOldestMachinesWhenThereAreTooMany) {
  MachineMemory memory({.max_machines = 3});
  Clock::Instant now{};
  for (const char* name : {"a", "b", "c", "d"}) memory.fault(ProviderId{name}, now += 1s);
  EXPECT_EQ(memory.num_machines(), 3u);
  EXPECT_EQ(memory.num_faults(ProviderId{"a"}), 0u);
  EXPECT_EQ(memory.num_faults(ProviderId{"d"}), 1u);
}

TEST(SeenModels, AreListedUntilTheyAreTooOld) {
  auto database = open_database(":memory:");
  ASSERT_TRUE(database.ok());
  ASSERT_TRUE(note_seen_models(*database, {"b", "a"}, 1'000).ok());
  ASSERT_TRUE(note_seen_models(*database, {"a"}, 2'000).ok());
  EXPECT_EQ(*list_seen_models(*database, 0), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*list_seen_models(*database, 1'500), std::vector<std::string>{"a"});
  ASSERT_TRUE(note_seen_models(*database, {"c"}, 1'500 + kModelMemorySeconds).ok());
  EXPECT_EQ(*list_seen_models(*database, 0), (std::vector<std::string>{"a", "c"}));
}

}  // namespace
}  // namespace flotilla::coordinator
