#include "flotilla/coordinator/money/accounts.h"

#include "flotilla/coordinator/money/money_view.h"
#include "flotilla/coordinator/money/testing.h"
#include "flotilla/coordinator/registry/node_table.h"

namespace flotilla::coordinator {
namespace {

using ::testing::HasSubstr;

class Accounts : public Books {};
INSTANTIATE_TEST_SUITE_P(On, Accounts, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

TEST_P(Accounts, HaveNamesAndAKeyNeedsOne) {
  EXPECT_EQ(again("default").id, kDefaultAccount);
  const Account alice = account("alice", 0);
  EXPECT_EQ(create_account(database, "alice", kStart).error().code, ErrorCode::kAlreadyExists);
  for (const char* bad : {"", "a b", "@platform", "a\n"}) {
    EXPECT_EQ(create_account(database, bad, kStart).error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(find_account(database, "bob").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(key(alice.id).account, alice.id);
  EXPECT_EQ(create_key(database, "old way", kStart)->record.account, kDefaultAccount);
  for (const std::uint64_t id : {2u, 3u, 99u}) {
    KeyOrder order{.name = "k", .account = AccountId{id}, .expires = {}, .spend_limit = {}};
    EXPECT_FALSE(create_key(database, order, kStart).ok()) << id;
  }
}

// B105: an event that comes again, late or out of order changes nothing.
TEST_P(Accounts, ATransferIsBookedOncePerIdempotencyKey) {
  account("alice", 0);
  const TransferOrder order{Transfer::kDeposit, "alice", 500, "invoice 7"};
  EXPECT_FALSE(transfer(database, order, kStart)->repeated);
  EXPECT_TRUE(transfer(database, order, kStart + 9)->repeated);
  TransferOrder other = order;
  other.amount = 501;
  EXPECT_EQ(transfer(database, other, kStart).error().code, ErrorCode::kAlreadyExists);
  other = order;
  other.kind = Transfer::kWithdrawal;
  EXPECT_EQ(transfer(database, other, kStart).error().code, ErrorCode::kAlreadyExists);
  other = order;
  other.account = "default";
  EXPECT_EQ(transfer(database, other, kStart).error().code, ErrorCode::kAlreadyExists);
  const TransferOrder paid{Transfer::kWithdrawal, "alice", 200, "payout 1"};
  EXPECT_FALSE(transfer(database, paid, kStart)->repeated);
  EXPECT_TRUE(transfer(database, order, kStart)->repeated);
  EXPECT_TRUE(transfer(database, paid, kStart)->repeated);
  EXPECT_EQ(again("alice").balance, 300);
  EXPECT_EQ(faults(), "");
}

TEST_P(Accounts, OnlyWhatIsAvailableCanBeWithdrawn) {
  account("alice", 100);
  const auto refused = transfer(database, {Transfer::kWithdrawal, "alice", 101, "p"}, kStart);
  EXPECT_EQ(refused.error().code, ErrorCode::kInsufficientFunds);
  EXPECT_THAT(refused.error().message, HasSubstr("has 0.0001 available"));
  for (const Micro bad : {Micro{0}, Micro{-5}, kMaxAmount + 1}) {
    EXPECT_EQ(transfer(database, {Transfer::kDeposit, "alice", bad, "x"}, kStart).error().code,
              ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(transfer(database, {Transfer::kDeposit, "alice", 1, ""}, kStart).ok());
  EXPECT_FALSE(transfer(database, {Transfer::kDeposit, "@outside", 1, "y"}, kStart).ok());
  EXPECT_EQ(again("alice").balance, 100);
}

TEST_P(Accounts, TheViewShowsPricesOwnersAndLimits) {
  const Account alice = account("alice", 0);
  ASSERT_TRUE(set_account_limits(database, "alice", {60, {}, 1'000}).ok());
  ASSERT_TRUE(invite_node(database, "box", kStart).ok());
  EXPECT_EQ(set_node_owner(database, "no such", std::string("alice")).error().code,
            ErrorCode::kNotFound);
  EXPECT_EQ(set_node_owner(database, "box", std::string("nobody")).error().code,
            ErrorCode::kNotFound);
  for (const char* system : {"@outside", "@platform"}) {
    EXPECT_EQ(set_node_owner(database, "box", std::string(system)).error().code,
              ErrorCode::kInvalidArgument);
  }
  ASSERT_TRUE(set_node_owner(database, "box", std::string("alice")).ok());
  EXPECT_TRUE((*read_money_view(database))->owners.empty()) << "it has not joined";
  const auto node = protocol::Identity::generate().public_key();
  const auto known = (*find_node(database, "box"))->known();
  const std::int64_t before = *change_count(database);
  ASSERT_TRUE(bind_node(database, known, node, kStart).ok());
  EXPECT_GT(*change_count(database), before) << "a running server must notice";
  price();
  const auto view = *read_money_view(database);
  EXPECT_EQ(view->owners.at(protocol::provider_id(node)), alice.id);
  EXPECT_EQ(view->account_limits.at(alice.id.value), (Limits{60, {}, 1'000}));
  EXPECT_NE(view->prices.in_force("m", kStart), nullptr);
  EXPECT_EQ(view->prices.in_force("m", kStart - 1), nullptr);
}

}  // namespace
}  // namespace flotilla::coordinator
