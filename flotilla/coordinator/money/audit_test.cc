#include "flotilla/coordinator/money/server_state.h"
#include "flotilla/coordinator/money/testing.h"

namespace flotilla::coordinator {
namespace {

using ::testing::HasSubstr;

class Audit : public Books {
 protected:
  Audit() {
    price();
    const Account alice = account("alice", 1'000);
    const KeyRecord with = key(alice.id);
    // One job that was charged 50, one that is open with 20.
    for (const bool ends : {true, false}) {
      const ReserveOrder order{protocol::random_job_id(), alice.id, with.id, "m", true, 10, 10};
      Reservation made;
      std::optional<Error> refusal;
      const Status done = database.transaction([&]() -> Status {
        FLOTILLA_TRY(const auto rows, list_prices(database));
        const PriceBook book(rows);
        JobMoney money(database, book, 4, 0, kStart);
        ReserveOrder wanted = order;
        if (ends) wanted.max_output_tokens = 40;
        FLOTILLA_TRY_STATUS(money.reserve(wanted, made, refusal));
        if (ends) {
          FLOTILLA_TRY_STATUS(money.settle({wanted.job,
                                            alice.id,
                                            with.id,
                                            "m",
                                            made,
                                            false,
                                            {10, 0, 40},
                                            {{kPlatformAccount, 1}},
                                            "ok"}));
        }
        return money.write_back();
      });
      EXPECT_TRUE(done.ok() && !refusal);
    }
    set("run", 4);
    set("run_began", kStart - 1'000);
    set("alive", kStart);
    set("recovery_s", 100);
  }
  void set(std::string_view name, std::int64_t value) {
    EXPECT_TRUE(
        database.transaction([&] { return write_server_state(database, name, value); }).ok());
  }
  void damage(const std::string& sql) {
    const auto done = database.execute(sql);
    ASSERT_TRUE(done.ok()) << to_string(done.error());
  }
};
INSTANTIATE_TEST_SUITE_P(On, Audit, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

TEST_P(Audit, GoodBooksHaveNoFaults) {
  EXPECT_EQ(faults(), "");
  const auto report = *audit(database, kStart);
  EXPECT_EQ(report.num_jobs, 2);
  EXPECT_EQ(report.num_open, 1);
  EXPECT_EQ(report.num_transactions, 2);
}

TEST_P(Audit, AChangedEntryIsFound) {
  damage("UPDATE ledger_entries SET amount = amount + 7 WHERE amount = -50");
  EXPECT_THAT(faults(), HasSubstr("does not sum to zero: 0.000007 too much"));
  EXPECT_THAT(faults(),
              HasSubstr("account 'alice' has a balance of 0.00095, its ledger entries sum "
                        "to 0.000957"));
}

TEST_P(Audit, ALostTransactionIsFound) {
  damage("DELETE FROM ledger_transactions WHERE kind = 'job'");
  EXPECT_THAT(faults(), HasSubstr("which is missing"));
  EXPECT_THAT(faults(), HasSubstr("was charged 0.00005, the ledger moved"));
}

TEST_P(Audit, ATransactionWithoutEntriesIsFound) {
  damage(
      "DELETE FROM ledger_entries WHERE transaction_id IN (SELECT id FROM ledger_transactions "
      "WHERE kind = 'job')");
  EXPECT_THAT(faults(), HasSubstr("has no entries"));
}

TEST_P(Audit, AChangedBalanceIsFound) {
  damage("UPDATE accounts SET balance = balance + 1 WHERE name = 'alice'");
  EXPECT_THAT(faults(), HasSubstr("account 'alice' has a balance of 0.000951"));
}

TEST_P(Audit, AReservationThatNoJobHoldsIsFound) {
  damage("DELETE FROM jobs WHERE state = 0");
  EXPECT_THAT(faults(), HasSubstr("account 'alice' has 0.00002 reserved, its open jobs hold 0.00"));
  EXPECT_THAT(faults(), HasSubstr("key 1 has 0.00002 reserved"));
}

TEST_P(Audit, AJobThatNobodyWorksOnIsFound) {
  EXPECT_THAT(faults(kStart + 3'600), HasSubstr("no server works on it"));
  // A new run has time to settle what the old one left, and not more.
  set("run", 5);
  set("run_began", kStart + 3'590);
  set("alive", kStart + 3'600);
  EXPECT_EQ(faults(kStart + 3'600), "");
  set("alive", kStart + 4'000);
  EXPECT_THAT(faults(kStart + 4'000), HasSubstr("no server works on it"));
}

TEST_P(Audit, AWrongChargeIsFound) {
  damage("UPDATE jobs SET charged = 49 WHERE state = 1");
  EXPECT_THAT(faults(), HasSubstr("was charged 0.000049, the ledger moved 0.00005"));
  damage("UPDATE jobs SET charged = 51 WHERE state = 1");
  EXPECT_THAT(faults(), HasSubstr("of its reservation of 0.00005"));
}

}  // namespace
}  // namespace flotilla::coordinator
