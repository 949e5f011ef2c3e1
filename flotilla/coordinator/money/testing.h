// For tests: the books in a database, on each kind of database.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "flotilla/coordinator/auth/key_table.h"
#include "flotilla/coordinator/money/audit.h"
#include "flotilla/coordinator/money/job_money.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/protocol/identity.h"
#include "flotilla/store/testing.h"

namespace flotilla::coordinator {

inline constexpr std::int64_t kStart = 1'700'000'000;  // as FakeClock begins

class Books : public ::testing::TestWithParam<std::string> {
 protected:
  store::Database open() {
    auto opened = open_database(place.path());
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    return std::move(*opened);
  }
  Account account(const std::string& name, Micro balance) {
    auto made = create_account(database, name, kStart);
    EXPECT_TRUE(made.ok());
    if (balance > 0) deposit(name, balance, "first of " + name);
    return *find_account(database, name);
  }
  void deposit(const std::string& name, Micro amount, const std::string& reference) {
    const auto done = transfer(database, {Transfer::kDeposit, name, amount, reference}, kStart);
    EXPECT_TRUE(done.ok()) << to_string(done.error());
  }
  KeyRecord key(AccountId owner, std::optional<Micro> spend_limit = {}) {
    KeyOrder order{.name = "k", .account = owner, .expires = {}, .spend_limit = spend_limit};
    const auto made = create_key(database, order, kStart);
    EXPECT_TRUE(made.ok()) << to_string(made.error());
    return made->record;
  }
  // One micro-unit per token in and out, a tenth of it for cached ones unless said otherwise.
  void price(const std::string& model = "m", Price price = {1'000'000, 100'000, 1'000'000},
             std::int64_t since = kStart) {
    EXPECT_TRUE(set_price(database, model, price, since, kStart).ok());
  }
  Account again(const std::string& name) { return *find_account(database, name); }
  std::string faults(std::int64_t now = kStart) {
    const auto report = audit(database, now);
    if (!report.ok()) return to_string(report.error());
    std::string out;
    for (const std::string& fault : report->faults) out += fault + "\n";
    return out;
  }

  store::TestDatabase place{GetParam()};
  store::Database database{open()};
};

}  // namespace flotilla::coordinator
