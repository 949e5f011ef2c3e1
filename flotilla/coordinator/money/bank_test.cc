#include "flotilla/coordinator/money/bank.h"

#include <atomic>
#include <future>
#include <thread>

#include "flotilla/coordinator/money/bank_till.h"
#include "flotilla/coordinator/money/recovery.h"
#include "flotilla/coordinator/money/server_state.h"
#include "flotilla/coordinator/money/testing.h"

namespace flotilla::coordinator {
namespace {

class BankTest : public Books {
 protected:
  std::unique_ptr<Bank> start(BankOptions options = {}) {
    auto bank = Bank::open(open(), clock, options, nullptr);
    EXPECT_TRUE(bank.ok()) << to_string(bank.error());
    return std::move(*bank);
  }
  ReserveOrder order(const Account& payer, const KeyRecord& with, std::int64_t output,
                     bool streamed = true) {
    return {protocol::random_job_id(),
            payer.id,
            with.id,
            "m",
            streamed,
            10,
            output,
            {ProviderId{"n"}, ProviderId{"a"}, ProviderId{"b"}}};
  }
  static Result<Reservation> reserve(Bank& bank, const ReserveOrder& order) {
    std::promise<Result<Reservation>> answer;
    bank.reserve(order, [&](Result<Reservation> made) { answer.set_value(std::move(made)); });
    return answer.get_future().get();
  }
  static SettleOrder ended(const ReserveOrder& of, const Reservation& made, std::int64_t output) {
    return {of.job, of.account, of.key, of.model, made, false, {10, 0, output}, {}, "ok"};
  }
  // As after a power failure: what this run has not written is gone, its thread with it.
  static void crash(std::unique_ptr<Bank>& bank) {
    bank->wait_until_answered();
    bank.reset();
  }
  static protocol::AttemptEnd report(const JobId& job, std::uint32_t attempt, std::uint64_t first,
                                     std::uint64_t end, bool finished) {
    return {protocol::to_hex(job), attempt, finished, first, end, 10, 0};
  }
  FakeClock clock;
};
INSTANTIATE_TEST_SUITE_P(On, BankTest, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

// "Parallel spending of one small balance: never below zero."
TEST_P(BankTest, ManyAtOnceSpendNoMoreThanThereIs) {
  price();
  const Account alice = account("alice", 1'000);
  const KeyRecord with = key(alice.id);
  auto bank = start();
  std::atomic<int> held{0}, refused{0}, other{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const ReserveOrder asked = order(alice, with, 90);
        auto made = std::make_shared<std::promise<Result<Reservation>>>();
        auto answer = made->get_future();
        bank->reserve(asked, [made](Result<Reservation> r) { made->set_value(std::move(r)); });
        const Result<Reservation> got = answer.get();
        if (got.ok()) {
          ++held;
          bank->settle(ended(asked, *got, 40));
        } else if (got.error().code == ErrorCode::kInsufficientFunds) {
          ++refused;
        } else {
          ++other;
        }
      }
    });
  }
  // Whenever one looks, the balance covers what is reserved.
  std::thread looker([&] {
    store::Database mine = open();
    for (int i = 0; i < 20; ++i) {
      const Account now = *find_account(mine, "alice");
      EXPECT_GE(now.available(), 0);
      EXPECT_GE(now.balance, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  for (std::thread& client : clients) client.join();
  looker.join();
  bank.reset();
  EXPECT_EQ(other, 0);
  EXPECT_EQ(held + refused, 400);
  const Account after = again("alice");
  EXPECT_EQ(after.reserved, 0);
  EXPECT_EQ(after.balance, 1'000 - held * 50);
  EXPECT_GT(held, 5);
  EXPECT_LE(held, 20);
  EXPECT_EQ(faults(clock.unix_seconds()), "");
}

TEST_P(BankTest, APriceSetByACommandHoldsForTheNextReservation) {
  const Account alice = account("alice", 100);
  const KeyRecord with = key(alice.id);
  auto bank = start();
  EXPECT_FALSE(reserve(*bank, order(alice, with, 90))->held());
  price();
  EXPECT_EQ(reserve(*bank, order(alice, with, 90))->amount, 100);
  EXPECT_FALSE(bank->view()->prices.empty());
  EXPECT_EQ(reserve(*bank, order(alice, with, 1)).error().code, ErrorCode::kInsufficientFunds);
  deposit("alice", 11, "more");
  EXPECT_EQ(reserve(*bank, order(alice, with, 1))->amount, 11);
}

TEST_P(BankTest, FreeUseIsCountedToo) {
  const Account alice = account("alice", 0);
  {
    auto bank = start();
    for (int i = 0; i < 5; ++i) bank->count({7, alice.id.value, 1, "m"}, {1, 10, 2, 5, 0});
  }
  const auto rows = *database.query("SELECT day, jobs, output_tokens FROM usage_days");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].integer(0), 7);
  EXPECT_EQ(rows[0].integer(1), 5);
  EXPECT_EQ(rows[0].integer(2), 25);
}

TEST_P(BankTest, WhatTheDatabaseDoesNotTakeIsRefusedAndSettlementsWait) {
  price();
  const Account alice = account("alice", 1'000);
  const KeyRecord with = key(alice.id);
  auto handle = open_database(place.path(), {.busy_timeout_ms = 20});
  ASSERT_TRUE(handle.ok());
  auto bank = std::move(*Bank::open(std::move(*handle), clock, {}, nullptr));
  const ReserveOrder first = order(alice, with, 90);
  const auto held = reserve(*bank, first);
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(database
                  .transaction([&]() -> Status {  // another process holds the lock
                    bank->settle(ended(first, *held, 40));
                    EXPECT_EQ(reserve(*bank, order(alice, with, 1)).error().code,
                              ErrorCode::kUnavailable);
                    return ok_status();
                  })
                  .ok());
  bank.reset();  // writes what waited
  EXPECT_EQ(again("alice").balance, 950);
  EXPECT_EQ(again("alice").reserved, 0);
  EXPECT_EQ(faults(clock.unix_seconds()), "");
}

// Two servers on one database would settle each other's jobs.
TEST_P(BankTest, ASecondServerEndsTheWritingOfTheFirst) {
  price();
  const Account alice = account("alice", 1'000);
  const KeyRecord with = key(alice.id);
  std::promise<void> told;
  BankOptions options;
  options.on_superseded = [&] { told.set_value(); };
  auto first = start(options);
  const ReserveOrder job = order(alice, with, 90);
  const auto made = reserve(*first, job);
  ASSERT_TRUE(made.ok());
  auto second = start();
  EXPECT_EQ(reserve(*first, order(alice, with, 1)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(told.get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready);
  first->settle(ended(job, *made, 90));
  EXPECT_TRUE(reserve(*second, order(alice, with, 1)).ok());
  EXPECT_EQ(again("alice").balance, 1'000);
  first.reset();
  EXPECT_EQ(again("alice").balance, 1'000) << "the second one asks the nodes";
}

TEST_P(BankTest, ItClosesInTimeWhateverIsLeftToWrite) {
  price();
  auto handle = open_database(place.path(), {.busy_timeout_ms = 20});
  ASSERT_TRUE(handle.ok());
  auto bank = std::move(*Bank::open(std::move(*handle), clock, {}, nullptr));
  std::future<void> closed;
  ASSERT_TRUE(database
                  .transaction([&]() -> Status {  // another process holds the lock
                    for (int i = 0; i < 3'000; ++i) {
                      SettleOrder job;
                      job.job = protocol::random_job_id();
                      job.reservation = {1, 1};
                      bank->settle(std::move(job));
                    }
                    closed = std::async(std::launch::async, [&] { bank.reset(); });
                    EXPECT_EQ(closed.wait_for(std::chrono::seconds(20)), std::future_status::ready);
                    return ok_status();
                  })
                  .ok());
  closed.wait();
}

class RecoveryTest : public BankTest {
 protected:
  RecoveryTest() {
    price();
    alice = account("alice", 10'000);
    with = key(alice.id);
  }
  // A run that makes these reservations and dies.
  void run_and_crash(const std::vector<ReserveOrder*>& orders, std::int64_t delivered = 0) {
    auto bank = start();
    for (ReserveOrder* order : orders) ASSERT_TRUE(reserve(*bank, *order).ok());
    deliver(*bank, orders, delivered);
    crash(bank);
  }
  // Until it is written.
  void deliver(Bank& bank, const std::vector<ReserveOrder*>& orders, std::int64_t tokens) {
    if (tokens == 0) return;
    for (const ReserveOrder* order : orders) bank.delivered(order->job, {10, 0, tokens});
    for (const ReserveOrder* order : orders) {
      const std::string id = protocol::to_hex(order->job);
      while (database.query("SELECT delivered FROM jobs WHERE id = :p1", {id})->at(0).integer(0) !=
             tokens) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
  }
  Account alice;
  KeyRecord with;
};
INSTANTIATE_TEST_SUITE_P(On, RecoveryTest, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

TEST_P(RecoveryTest, AJobThatItsNodeFinishedIsSettledAtOnceAsFarAsItsClientGotIt) {
  ReserveOrder job = order(alice, with, 90);
  run_and_crash({&job}, 25);
  auto bank = start();
  Recovery recovery(*bank, clock, std::chrono::seconds(60));
  ASSERT_EQ(recovery.questions(ProviderId{"n"}).size(), 1u);
  EXPECT_EQ(recovery.questions(ProviderId{"n"})[0].jobs, std::vector{protocol::to_hex(job.job)});
  const ProviderId node{"n"};
  recovery.on_report(node, {{report(job.job, 1, 0, 30, true)}});
  recovery.on_report(node, {{report(job.job, 1, 0, 30, true)}});
  EXPECT_TRUE(recovery.done());
  bank.reset();
  EXPECT_EQ(again("alice").balance, 10'000 - 10 - 25);
  EXPECT_EQ(again("alice").reserved, 0);
  EXPECT_EQ(faults(clock.unix_seconds()), "");
}

// Its client had nothing when the power went, whatever its node did.
TEST_P(RecoveryTest, WhatWasNotStreamedOrNeverSeenGoesBackAtOnce) {
  ReserveOrder whole = order(alice, with, 90, false), unseen = order(alice, with, 90);
  run_and_crash({&whole, &unseen});
  auto bank = start();
  const Recovery recovery(*bank, clock, std::chrono::seconds(60));
  EXPECT_TRUE(recovery.done());
  EXPECT_TRUE(recovery.questions(ProviderId{"n"}).empty());
  bank.reset();
  EXPECT_EQ(again("alice").available(), 10'000);
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM jobs WHERE state = 2")->at(0).integer(0), 2);
}

TEST_P(RecoveryTest, WhatWasStreamedIsChargedAsFarAsItWasHandedOverAndIsReported) {
  ReserveOrder streamed = order(alice, with, 90), unknown = order(alice, with, 90);
  run_and_crash({&streamed, &unknown}, 30);
  auto bank = start();
  Recovery recovery(*bank, clock, std::chrono::seconds(60));
  EXPECT_EQ(recovery.num_open(), 2u);
  // Two nodes had served the same stream: each token counts once.
  recovery.on_report(ProviderId{"b"}, {{report(streamed.job, 2, 20, 35, false)}});
  recovery.on_report(ProviderId{"a"}, {{report(streamed.job, 1, 0, 20, false),
                                        report(protocol::random_job_id(), 1, 0, 50, true)}});
  recovery.tick();
  EXPECT_EQ(recovery.num_open(), 2u) << "other nodes may still come back";
  clock.advance(std::chrono::seconds(60));
  recovery.tick();
  EXPECT_TRUE(recovery.done());
  bank.reset();
  EXPECT_EQ(again("alice").balance, 10'000 - 10 - 30);
  EXPECT_EQ(again("alice").reserved, 0);
  EXPECT_EQ(faults(clock.unix_seconds()), "");
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM jobs WHERE state = 2")->at(0).integer(0), 1);
}

TEST_P(RecoveryTest, ARecoveryThatIsCutShortGoesOnInTheNextRun) {
  ReserveOrder job = order(alice, with, 90);
  run_and_crash({&job}, 10);
  {
    auto bank = start();
    const Recovery cut_short(*bank, clock, std::chrono::seconds(60));
    EXPECT_EQ(cut_short.num_open(), 1u);
  }
  auto bank = start();
  Recovery recovery(*bank, clock, std::chrono::seconds(60));
  EXPECT_EQ(recovery.num_open(), 1u);
  clock.advance(std::chrono::seconds(61));
  recovery.tick();
  bank.reset();
  EXPECT_EQ(again("alice").available(), 10'000);
}

TEST_P(RecoveryTest, ManyJobsAreAskedForInSeveralMessages) {
  std::vector<ReserveOrder> orders;
  std::vector<ReserveOrder*> all;
  for (int i = 0; i < 1'001; ++i) orders.push_back(order(alice, with, 1));
  for (ReserveOrder& one : orders) all.push_back(&one);
  deposit("alice", 100'000, "enough");
  {
    auto bank = start();
    for (const ReserveOrder& one : orders)
      bank->reserve(one, [](Result<Reservation> made) { EXPECT_TRUE(made.ok()); });
    bank->wait_until_answered();
    deliver(*bank, all, 1);
    crash(bank);
  }
  auto bank = start();
  const Recovery recovery(*bank, clock, std::chrono::seconds(60));
  const auto questions = recovery.questions(ProviderId{"n"});
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].jobs.size() + questions[1].jobs.size(), 1'001u);
}

TEST_P(RecoveryTest, OnlyNodesThatAJobWasGivenToAreAskedAndBelieved) {
  ReserveOrder job = order(alice, with, 90);
  job.nodes = {ProviderId{"a"}};
  {
    auto bank = start();
    ASSERT_TRUE(reserve(*bank, job).ok());
    bank->continued_on(job.job, ProviderId{"b"});
    deliver(*bank, {&job}, 30);
    crash(bank);
  }
  auto bank = start();
  Recovery recovery(*bank, clock, std::chrono::seconds(60));
  EXPECT_EQ(recovery.questions(ProviderId{"a"}).size(), 1u);
  EXPECT_EQ(recovery.questions(ProviderId{"b"}).size(), 1u);
  const ProviderId thief{"thief"};
  EXPECT_TRUE(recovery.questions(thief).empty());
  recovery.on_report(thief, {{report(job.job, 1, 0, 90, true)}});
  EXPECT_EQ(recovery.num_open(), 1u);
  recovery.on_report(ProviderId{"b"}, {{report(job.job, 2, 0, 30, true)}});
  EXPECT_TRUE(recovery.done());
  bank.reset();
  EXPECT_EQ(again("alice").balance, 10'000 - 40);
}

TEST_P(RecoveryTest, ReportsBeyondReasonAreNotBelieved) {
  ReserveOrder job = order(alice, with, 90);
  run_and_crash({&job}, 30);
  auto bank = start();
  Recovery recovery(*bank, clock, std::chrono::seconds(60));
  const ProviderId node{"n"};
  const std::uint64_t half = std::uint64_t{1} << 63;
  recovery.on_report(node,
                     {{report(job.job, 1, 0, half, false), report(job.job, 2, 0, half + 2, true),
                       report(job.job, 3, 7, 5, true)}});
  EXPECT_EQ(recovery.num_open(), 1u);
  protocol::AttemptEnd last = report(job.job, 4, 0, 30, true);
  last.cached_tokens = -5;
  recovery.on_report(node, {{last}});
  EXPECT_TRUE(recovery.done());
  bank.reset();
  EXPECT_EQ(again("alice").balance, 10'000 - 40);
  EXPECT_EQ(database.query("SELECT cached_tokens FROM jobs")->at(0).integer(0), 0);
  EXPECT_EQ(faults(clock.unix_seconds()), "");
}

}  // namespace
}  // namespace flotilla::coordinator
