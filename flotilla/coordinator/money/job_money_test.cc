#include "flotilla/coordinator/money/job_money.h"

#include <random>

#include "flotilla/coordinator/money/retention.h"
#include "flotilla/coordinator/money/server_state.h"
#include "flotilla/coordinator/money/testing.h"

namespace flotilla::coordinator {
namespace {

using ::testing::HasSubstr;

class JobMoneyTest : public Books {
 protected:
  ReserveOrder order(const Account& payer, const KeyRecord& with, std::int64_t prompt,
                     std::int64_t output) {
    return {protocol::random_job_id(), payer.id, with.id, "m", true, prompt, output};
  }
  // In a transaction of its own.
  Result<Reservation> reserve(const ReserveOrder& order) {
    Reservation made;
    std::optional<Error> refusal;
    const Status done =
        in_transaction([&](JobMoney& money) { return money.reserve(order, made, refusal); });
    if (!done.ok()) return done.error();
    if (refusal) return *refusal;
    return made;
  }
  void settle(const SettleOrder& order) {
    const Status done = in_transaction([&](JobMoney& money) { return money.settle(order); });
    EXPECT_TRUE(done.ok()) << to_string(done.error());
  }
  SettleOrder settlement(const ReserveOrder& of, const Reservation& made, TokenCounts tokens,
                         std::vector<ServedShare> served = {{kPlatformAccount, 1}}) {
    return {of.job, of.account, of.key, of.model, made, false, tokens, std::move(served), "ok"};
  }
  Status in_transaction(const std::function<Status(JobMoney&)>& body) {
    return database.transaction([&]() -> Status {
      FLOTILLA_TRY(const auto rows, list_prices(database));
      const PriceBook book(rows);
      JobMoney money(database, book, 1, fee, now);
      FLOTILLA_TRY_STATUS(body(money));
      return money.write_back();
    });
  }
  void be_alive() {
    EXPECT_TRUE(database
                    .transaction([&]() -> Status {
                      FLOTILLA_TRY_STATUS(write_server_state(database, "run", 1));
                      return write_server_state(database, "alive", now);
                    })
                    .ok());
  }
  std::int64_t fee = 0;
  std::int64_t now = kStart;
};
INSTANTIATE_TEST_SUITE_P(On, JobMoneyTest, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

TEST_P(JobMoneyTest, AReservationHoldsTheWorstCaseAndASettlementGivesTheRestBack) {
  price();
  const Account alice = account("alice", 1'000);
  const KeyRecord with = key(alice.id);
  const ReserveOrder asked = order(alice, with, 100, 500);
  const auto made = reserve(asked);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->amount, 600);
  EXPECT_EQ(again("alice").reserved, 600);
  EXPECT_EQ(again("alice").available(), 400);
  settle(settlement(asked, *made, {100, 50, 20}));
  const Account after = again("alice");
  EXPECT_EQ(after.reserved, 0);
  EXPECT_EQ(after.balance, 1'000 - (50 + 5 + 20));
  EXPECT_EQ(again("@platform").balance, 75);
  EXPECT_EQ(again("@outside").balance, -1'000);
  EXPECT_EQ(faults(), "");
}

TEST_P(JobMoneyTest, TooLittleIsRefusedWithTheNumbers) {
  price();
  const Account alice = account("alice", 100);
  const KeyRecord with = key(alice.id);
  ASSERT_TRUE(reserve(order(alice, with, 10, 50)).ok());
  const auto refused = reserve(order(alice, with, 1, 40));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInsufficientFunds);
  EXPECT_THAT(refused.error().message, HasSubstr("up to 0.000041, available are 0.00004"));
  EXPECT_TRUE(reserve(order(alice, with, 1, 39)).ok());
  EXPECT_EQ(again("alice").available(), 0);
  be_alive();
  EXPECT_EQ(faults(), "");
}

TEST_P(JobMoneyTest, OneTransactionSeesItsOwnReservations) {
  price();
  const Account alice = account("alice", 100);
  const KeyRecord with = key(alice.id);
  int held = 0, refused = 0;
  ASSERT_TRUE(in_transaction([&](JobMoney& money) -> Status {
                for (int i = 0; i < 15; ++i) {
                  Reservation made;
                  std::optional<Error> refusal;
                  FLOTILLA_TRY_STATUS(money.reserve(order(alice, with, 5, 5), made, refusal));
                  ++(refusal ? refused : held);
                }
                return ok_status();
              }).ok());
  EXPECT_EQ(held, 10);
  EXPECT_EQ(refused, 5);
  EXPECT_EQ(again("alice").reserved, 100);
}

// B103.
TEST_P(JobMoneyTest, ASettlementToldTwiceCountsOnce) {
  price();
  const Account alice = account("alice", 1'000);
  const KeyRecord with = key(alice.id);
  const ReserveOrder asked = order(alice, with, 10, 10);
  const auto made = reserve(asked);
  SettleOrder refund = settlement(asked, *made, {});
  refund.refund = true;
  settle(settlement(asked, *made, {10, 0, 10}));
  settle(settlement(asked, *made, {10, 0, 10}));
  settle(refund);
  EXPECT_EQ(again("alice").balance, 980);
  EXPECT_EQ(again("alice").reserved, 0);
  EXPECT_EQ(faults(), "");
  // The other way round: refunded stays refunded.
  const ReserveOrder other = order(alice, with, 10, 10);
  const auto held = reserve(other);
  refund = settlement(other, *held, {});
  refund.refund = true;
  settle(refund);
  settle(settlement(other, *held, {10, 0, 10}));
  EXPECT_EQ(again("alice").balance, 980);
  EXPECT_EQ(again("alice").available(), 980);
  EXPECT_EQ(faults(), "");
}

TEST_P(JobMoneyTest, NobodyIsChargedMoreThanWasHeld) {
  price();
  const Account alice = account("alice", 30);
  const KeyRecord with = key(alice.id);
  const ReserveOrder asked = order(alice, with, 10, 10);
  settle(settlement(asked, *reserve(asked), {10, 0, 5'000}));
  EXPECT_EQ(again("alice").balance, 10);
  EXPECT_EQ(faults(), "");
}

TEST_P(JobMoneyTest, AJobKeepsThePriceOfItsReservation) {
  price("m", {1'000'000, 1'000'000, 1'000'000});
  const Account alice = account("alice", 100'000);
  const KeyRecord with = key(alice.id);
  const ReserveOrder before = order(alice, with, 10, 10);
  const auto held = reserve(before);
  price("m", {5'000'000, 5'000'000, 5'000'000}, kStart + 50);
  EXPECT_EQ(reserve(order(alice, with, 10, 10))->amount, 20);
  now = kStart + 50;
  EXPECT_EQ(reserve(order(alice, with, 10, 10))->amount, 100);
  settle(settlement(before, *held, {10, 0, 10}));
  EXPECT_EQ(again("alice").balance, 100'000 - 20);
  EXPECT_EQ(list_prices(database)->size(), 2u);
  EXPECT_FALSE(set_price(database, "m", {}, kStart, kStart + 50).ok()) << "the past is fixed";
}

TEST_P(JobMoneyTest, WithoutAPriceNothingIsHeld) {
  const Account alice = account("alice", 0);
  const KeyRecord with = key(alice.id);
  EXPECT_FALSE(reserve(order(alice, with, 1'000, 1'000))->held());
  price("other");
  EXPECT_FALSE(reserve(order(alice, with, 1'000, 1'000))->held());
  price("*");
  EXPECT_EQ(reserve(order(alice, with, 1, 1)).error().code, ErrorCode::kInsufficientFunds);
  price("m", {0, 0, 0});
  EXPECT_FALSE(reserve(order(alice, with, 1'000, 1'000))->held()) << "its own price comes first";
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM jobs")->at(0).integer(0), 0);
}

TEST_P(JobMoneyTest, AKeySpendsNoMoreThanItsLimit) {
  price();
  const Account alice = account("alice", 1'000);
  const KeyRecord with = key(alice.id, 50);
  const ReserveOrder first = order(alice, with, 10, 30);
  const auto held = reserve(first);
  const auto refused = reserve(order(alice, with, 10, 1));
  EXPECT_EQ(refused.error().code, ErrorCode::kInsufficientFunds);
  EXPECT_THAT(refused.error().message, HasSubstr("the key's spend limit of 0.00005"));
  settle(settlement(first, *held, {10, 0, 5}));  // 15 of 50 spent
  EXPECT_TRUE(reserve(order(alice, with, 10, 25)).ok());
  EXPECT_FALSE(reserve(order(alice, with, 1, 0)).ok());
  EXPECT_TRUE(reserve(order(alice, key(alice.id), 1, 0)).ok()) << "another key is not concerned";
  EXPECT_EQ(list_keys(database)->at(0).spent, 15);
}

TEST_P(JobMoneyTest, AKeyThatEndedReservesNothing) {
  price();
  const Account alice = account("alice", 1'000);
  KeyOrder wanted{.name = "k", .account = alice.id, .expires = kStart + 10, .spend_limit = {}};
  const KeyRecord with = create_key(database, wanted, kStart)->record;
  EXPECT_TRUE(reserve(order(alice, with, 1, 1)).ok());
  now = kStart + 10;
  EXPECT_EQ(reserve(order(alice, with, 1, 1)).error().code, ErrorCode::kUnauthenticated);
}

TEST_P(JobMoneyTest, OwnersEarnByTokensAndTheOperatorItsFee) {
  price();
  fee = 1'000;  // a tenth
  const Account alice = account("alice", 10'000);
  const Account bob = account("bob", 0), carol = account("carol", 0);
  const KeyRecord with = key(alice.id);
  const ReserveOrder asked = order(alice, with, 100, 100);
  settle(settlement(asked, *reserve(asked), {100, 0, 91}, {{bob.id, 2}, {carol.id, 1}}));
  EXPECT_EQ(again("alice").balance, 10'000 - 191);
  // 191 less 19 are 172: two thirds and one third, and what rounding leaves is the operator's.
  EXPECT_EQ(again("bob").balance, 114);
  EXPECT_EQ(again("carol").balance, 57);
  EXPECT_EQ(again("@platform").balance, 20);
  EXPECT_EQ(faults(), "");
}

TEST_P(JobMoneyTest, OnesOwnNodeIsFreeOnlyIfItServedAll) {
  price();
  const Account alice = account("alice", 1'000);
  const Account bob = account("bob", 0);
  const KeyRecord with = key(alice.id);
  const ReserveOrder own = order(alice, with, 10, 90);
  settle(settlement(own, *reserve(own), {10, 0, 90}, {{alice.id, 90}}));
  EXPECT_EQ(again("alice").balance, 1'000);
  const ReserveOrder mixed = order(alice, with, 10, 90);
  settle(settlement(mixed, *reserve(mixed), {10, 0, 90}, {{alice.id, 45}, {bob.id, 45}}));
  EXPECT_EQ(again("alice").balance, 950) << "charged 100, earned 50 of it";
  EXPECT_EQ(again("bob").balance, 50);
  EXPECT_EQ(faults(), "");
}

TEST_P(JobMoneyTest, UsageIsCountedWithTheSettlement) {
  price();
  const Account alice = account("alice", 1'000);
  const KeyRecord with = key(alice.id);
  for (int i = 0; i < 3; ++i) {
    const ReserveOrder asked = order(alice, with, 10, 10);
    settle(settlement(asked, *reserve(asked), {10, 5, 4}));
  }
  const ReserveOrder failed = order(alice, with, 10, 10);
  SettleOrder refund = settlement(failed, *reserve(failed), {});
  refund.refund = true;
  settle(refund);
  const auto rows = *database.query(
      "SELECT jobs, prompt_tokens, cached_tokens, output_tokens, charged FROM usage_days");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].integer(0), 3);
  EXPECT_EQ(rows[0].integer(1), 30);
  EXPECT_EQ(rows[0].integer(2), 15);
  EXPECT_EQ(rows[0].integer(3), 12);
  EXPECT_EQ(rows[0].integer(4), 1'000 - again("alice").balance);
}

// Random deposits, withdrawals, reservations, settlements (some told twice) and refunds, several in
// one transaction and some of those undone: the books stay right, and nobody owes.
TEST_P(JobMoneyTest, WhateverHappensTheBooksAreRight) {
  struct OpenOne {
    ReserveOrder order;
    Reservation made;
  };
  std::mt19937 random(7);
  const auto roll = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  price("m", {700'000, 70'000, 2'300'000});
  std::vector<Account> accounts;
  std::vector<KeyRecord> keys;
  for (const char* name : {"a", "b", "c"}) {
    accounts.push_back(account(name, 20'000));
    keys.push_back(key(accounts.back().id));
    keys.push_back(key(accounts.back().id, 3'000));
  }
  std::vector<OpenOne> open;
  std::vector<SettleOrder> told;
  Micro put_in = 60'000;
  const int kRounds = 250;
  for (int round = 0; round < kRounds; ++round) {
    fee = roll(10'001);
    now += roll(3'600);
    if (roll(10) == 0) {
      const std::string name = accounts[static_cast<std::size_t>(roll(3))].name;
      const Micro amount = 1 + roll(2'000);
      const bool comes_in = roll(2) == 0;
      const auto moved = transfer(database,
                                  {comes_in ? Transfer::kDeposit : Transfer::kWithdrawal, name,
                                   amount, "t" + std::to_string(round)},
                                  now);
      if (moved.ok()) put_in += comes_in ? amount : -amount;
      if (!moved.ok()) {
        EXPECT_EQ(moved.error().code, ErrorCode::kInsufficientFunds);
      }
    }
    const bool undo = roll(5) == 0;
    std::vector<OpenOne> fresh;
    std::vector<SettleOrder> ended;
    const Status done = in_transaction([&](JobMoney& money) -> Status {
      for (int i = roll(6); i > 0; --i) {
        const KeyRecord& with = keys[static_cast<std::size_t>(roll(6))];
        const auto payer = std::find_if(accounts.begin(), accounts.end(),
                                        [&](const Account& a) { return a.id == with.account; });
        OpenOne one{order(*payer, with, roll(900), roll(900)), {}};
        std::optional<Error> refusal;
        FLOTILLA_TRY_STATUS(money.reserve(one.order, one.made, refusal));
        if (!refusal) fresh.push_back(one);
      }
      for (int i = roll(6); i > 0 && ended.size() < open.size(); --i) {
        const OpenOne& one = open[ended.size()];
        SettleOrder end =
            settlement(one.order, one.made, {roll(1'200), roll(1'200), roll(1'200)}, {});
        for (int n = roll(4); n > 0; --n) {
          const AccountId owner =
              roll(4) == 0 ? kPlatformAccount : accounts[static_cast<std::size_t>(roll(3))].id;
          end.served.push_back({owner, static_cast<std::uint64_t>(roll(50))});
        }
        end.refund = roll(4) == 0;
        ended.push_back(end);
        FLOTILLA_TRY_STATUS(money.settle(end));
      }
      if (!told.empty()) {
        FLOTILLA_TRY_STATUS(
            money.settle(told[static_cast<std::size_t>(roll(static_cast<int>(told.size())))]));
      }
      return undo ? Status(Error{ErrorCode::kCancelled, "undone"}) : ok_status();
    });
    ASSERT_EQ(done.ok(), !undo) << to_string(done.error());
    if (!undo) {
      open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(ended.size()));
      open.insert(open.end(), fresh.begin(), fresh.end());
      told.insert(told.end(), ended.begin(), ended.end());
    }
    if (round % 10 != 0) continue;
    be_alive();
    ASSERT_EQ(faults(now), "") << "after round " << round;
  }
  for (const OpenOne& one : open) {
    SettleOrder end = settlement(one.order, one.made, {});
    end.refund = true;
    settle(end);
  }
  Micro total = 0;
  const auto everybody = *list_accounts(database);
  for (const Account& one : everybody) {
    EXPECT_EQ(one.reserved, 0) << one.name;
    if (one.id != kOutsideAccount) total += one.balance;
  }
  EXPECT_EQ(total, put_in);
  EXPECT_EQ(again("@outside").balance, -put_in);
  EXPECT_GT(told.size(), 100u) << "hardly anything was tried";
  // What the retention sums up changes nothing.
  const auto before = *list_accounts(database);
  const std::int64_t later = now + 500 * 86'400;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(retire_some(database, {}, later).ok());
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM jobs")->at(0).integer(0), 0);
  EXPECT_LE(database
                .query("SELECT COUNT(*) FROM ledger_transactions WHERE kind <> 'deposit' AND "
                       "kind <> 'withdrawal'")
                ->at(0)
                .integer(0),
            2);
  EXPECT_EQ(faults(later), "");
  const auto after = *list_accounts(database);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i].balance, before[i].balance);
}

}  // namespace
}  // namespace flotilla::coordinator
