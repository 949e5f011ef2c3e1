#include "flotilla/coordinator/gateway/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace flotilla::coordinator {
namespace {

using ::testing::ElementsAre;

JobId job(int n) {
  JobId id;
  id.bytes[0] = static_cast<std::uint8_t>(n);
  return id;
}

std::vector<int> drain(FairQueue& queue) {
  std::vector<int> order;
  while (queue.offer([&](const JobId& id) {
    order.push_back(id.bytes[0]);
    return true;
  })) {
  }
  return order;
}

TEST(FairQueue, KeysTakeTurnsAndEachKeepsItsOrder) {
  FairQueue queue;
  for (int i = 1; i <= 4; ++i) queue.push(job(i), 1);
  queue.push(job(21), 2);
  queue.push(job(22), 2);
  queue.push(job(31), 3);
  EXPECT_EQ(queue.size(), 7u);
  EXPECT_THAT(drain(queue), ElementsAre(1, 21, 31, 2, 22, 3, 4));
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, UrgentJobsGoFirstInTheirOrder) {
  FairQueue queue;
  queue.push(job(1), 1);
  queue.push_urgent(job(8));
  queue.push_urgent(job(9));
  EXPECT_THAT(drain(queue), ElementsAre(8, 9, 1));
}

TEST(FairQueue, AJobThatCannotBeTakenDoesNotHoldUpTheNext) {
  FairQueue queue;
  queue.push(job(1), 1);
  queue.push(job(2), 1);
  EXPECT_TRUE(queue.offer([](const JobId& id) { return id == job(2); }));
  EXPECT_FALSE(queue.offer([](const JobId&) { return false; }));
  EXPECT_THAT(drain(queue), ElementsAre(1));
}

TEST(FairQueue, ErasedJobsAreGoneAndOthersErasedTwiceHarmNothing) {
  FairQueue queue;
  queue.push(job(1), 1);
  queue.push_urgent(job(2));
  queue.erase(job(1), 1);
  queue.erase(job(1), 1);
  queue.erase(job(2), 1);
  queue.erase(job(3), 7);
  EXPECT_TRUE(queue.empty());
  queue.push(job(4), 1);
  EXPECT_THAT(drain(queue), ElementsAre(4));
}

TEST(FairQueue, OnlyAKeyWithClearlyMoreIsDisplaced) {
  FairQueue queue;
  EXPECT_FALSE(queue.to_displace_for(1));
  queue.push(job(1), 1);
  queue.push(job(2), 1);
  EXPECT_EQ(queue.to_displace_for(2), job(2));
  EXPECT_FALSE(queue.to_displace_for(1));
  queue.push(job(3), 2);
  EXPECT_FALSE(queue.to_displace_for(2));  // it would only change places
}

}  // namespace
}  // namespace flotilla::coordinator
