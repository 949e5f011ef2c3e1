#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "flotilla/base/text.h"
#include "flotilla/coordinator/auth/api_key_store.h"
#include "flotilla/coordinator/auth/key_table.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/coordinator/registry/access_store.h"
#include "flotilla/coordinator/registry/node_table.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/protocol/link_error.h"

namespace flotilla::coordinator {
namespace {

using ::testing::HasSubstr;

store::Database memory() { return std::move(*open_database(":memory:")); }

std::string message_of(const Result<serving::Caller>& caller) {
  return caller.ok() ? "" : caller.error().message;
}

TEST(ApiKeys, AKeyIsRandomAndOnlyItsHashIsStored) {
  store::Database database = memory();
  const NewKey made = *create_key(database, "alice", 1000);
  EXPECT_EQ(made.key.size(), 3u + 43u);
  EXPECT_TRUE(made.key.starts_with("fl-"));
  EXPECT_NE(create_key(database, "alice", 1000)->key, made.key);
  const auto rows = *database.query("SELECT id, name, prefix, hash, created FROM api_keys");
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.num_columns(); ++i) {
      EXPECT_EQ(row.text(i).find(made.key.substr(8)), std::string::npos);
    }
  }
  const auto keys = *list_keys(database);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].prefix, made.key.substr(0, 8));
  EXPECT_EQ(keys[0].hash, hash_key(made.key));
  EXPECT_EQ(keys[0].created, 1000);
  EXPECT_FALSE(create_key(database, "", 1).ok());
  EXPECT_FALSE(create_key(database, "a\nb", 1).ok());
}

TEST(ApiKeys, ValidUnknownMissingAndRevokedKeysAreToldApart) {
  store::Database database = memory();
  const NewKey alice = *create_key(database, "alice", 1);
  const NewKey bob = *create_key(database, "bob", 1);
  ApiKeyStore keys;
  keys.load(*list_keys(database));
  EXPECT_EQ(keys.num_active(), 2u);
  auto caller = keys.authenticate(alice.key);
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->key_id, alice.record.id.value);
  EXPECT_NE(caller->tenant, keys.authenticate(bob.key)->tenant);
  EXPECT_THAT(message_of(keys.authenticate(std::nullopt)), HasSubstr("API key is needed"));
  EXPECT_THAT(message_of(keys.authenticate("fl-nonsense")), HasSubstr("not valid"));
  EXPECT_THAT(message_of(keys.authenticate(std::string(100'000, 'x'))), HasSubstr("not valid"));
  EXPECT_THAT(message_of(keys.authenticate(alice.key + "\n")), HasSubstr("not valid"));
  ASSERT_TRUE(revoke_key(database, "alice", 2).ok());
  keys.load(*list_keys(database));
  EXPECT_EQ(keys.authenticate(alice.key).error().code, ErrorCode::kUnauthenticated);
  EXPECT_THAT(message_of(keys.authenticate(alice.key)), HasSubstr("revoked"));
  EXPECT_TRUE(keys.authenticate(bob.key).ok());
}

TEST(ApiKeys, RevokingNeedsOneKey) {
  store::Database database = memory();
  ASSERT_TRUE(create_key(database, "a", 1).ok());
  ASSERT_TRUE(create_key(database, "a", 1).ok());
  EXPECT_EQ(revoke_key(database, "a", 2).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(revoke_key(database, "nobody", 2).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(revoke_key(database, "2", 2).ok());
  EXPECT_TRUE(revoke_key(database, "a", 3).ok());
  EXPECT_EQ(*(*list_keys(database))[0].revoked, 3);
  EXPECT_EQ(*(*list_keys(database))[1].revoked, 2);
}

TEST(Nodes, LiveFromInvitationOverBindingToRevocation) {
  store::Database database = memory();
  const protocol::Seed secret = *invite_node(database, "alpha", 10);
  auto record = *find_node(database, "alpha");
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->invite_key, protocol::Identity::from_seed(secret).public_key());
  EXPECT_FALSE(record->public_key);

  // A second invitation before the join voids the first.
  const protocol::KnownNode old = record->known();
  ASSERT_TRUE(invite_node(database, "alpha", 11).ok());
  const auto mine = protocol::Identity::generate().public_key();
  EXPECT_EQ(protocol::link_fault(bind_node(database, old, mine, 12).error()),
            protocol::LinkFault::kBadInvite);

  const protocol::KnownNode known = (*find_node(database, "alpha"))->known();
  ASSERT_TRUE(bind_node(database, known, mine, 12).ok());
  EXPECT_TRUE(bind_node(database, known, mine, 13).ok());
  const auto other = protocol::Identity::generate().public_key();
  EXPECT_FALSE(bind_node(database, known, other, 13).ok());
  EXPECT_EQ((*find_node(database, "alpha"))->public_key, mine);
  EXPECT_EQ(invite_node(database, "alpha", 14).error().code, ErrorCode::kAlreadyExists);

  ASSERT_TRUE(revoke_node(database, "alpha", 15).ok());
  EXPECT_TRUE((*find_node(database, "alpha"))->known().revoked);
  EXPECT_EQ(revoke_node(database, "beta", 15).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(invite_node(database, "alpha", 16).ok());
  EXPECT_FALSE((*find_node(database, "alpha"))->public_key);
  EXPECT_FALSE(invite_node(database, "bad name", 1).ok());
}

TEST(AccessStore, SeesWhatAnotherProcessChanged) {
  const std::string path = ::testing::TempDir() + "/flotilla-access-" + std::to_string(::getpid());
  const auto remove_all = [&] {
    for (const char* suffix : {"", "-wal", "-shm"}) std::remove((path + suffix).c_str());
  };
  remove_all();
  {
    const SystemClock clock;
    ApiKeyStore keys;
    std::atomic<int> reloads{0};
    auto opened = AccessStore::open(std::move(*open_database(path)), keys, clock,
                                    [&](std::vector<NodeRecord>) { ++reloads; });
    ASSERT_TRUE(opened.ok());
    AccessStore& access = **opened;
    const auto poll_until = [&](auto&& condition) {
      for (int i = 0; i < 500 && !condition(); ++i) {
        access.poll();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      return condition();
    };
    store::Database command = std::move(*open_database(path));
    const NewKey made = *create_key(command, "late", 1);
    EXPECT_FALSE(keys.authenticate(made.key).ok());
    EXPECT_TRUE(poll_until([&] { return keys.authenticate(made.key).ok(); }));
    ASSERT_TRUE(revoke_key(command, "late", 2).ok());
    EXPECT_TRUE(poll_until([&] { return !keys.authenticate(made.key).ok(); }));
    // Nothing changed: nothing is loaded.
    const int before = reloads;
    for (int i = 0; i < 20; ++i) {
      access.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(reloads, before);
  }
  remove_all();
}

TEST(Config, PlainListenersAreForLoopbackUnlessInsecure) {
  CoordinatorConfig config;
  EXPECT_TRUE(validate(config).ok());
  config.listen = "0.0.0.0:8080";
  EXPECT_THAT(validate(config).error().message, HasSubstr("without TLS"));
  config.insecure = true;
  EXPECT_TRUE(validate(config).ok());
  config.insecure = false;
  config.tls_certificate_file = "c.pem";
  EXPECT_THAT(validate(config).error().message, HasSubstr("go together"));
  config.tls_key_file = "k.pem";
  EXPECT_TRUE(validate(config).ok());
  config.link_listen = "nonsense";
  EXPECT_FALSE(validate(config).ok());
  config.link_listen = "[::1]:9000";
  EXPECT_TRUE(validate(config).ok());
  for (const char* bad : {"", ":80", "host", "::1:80", "1.2.3.4:", "1.2.3.4:99999", "1.2.3.4:1x"}) {
    EXPECT_FALSE(parse_listen_address(bad).ok()) << bad;
  }
  EXPECT_EQ(config.identity_path(), "flotilla-coordinator.sqlite.key");
}

TEST(ApiKeys, AnIdWinsOverANameThatLooksLikeIt) {
  store::Database database = memory();
  ASSERT_EQ(create_key(database, "2", 1)->record.id.value, 1u);
  ASSERT_EQ(create_key(database, "other", 1)->record.id.value, 2u);
  const auto revoked = revoke_key(database, "2", 5);
  ASSERT_TRUE(revoked.ok()) << to_string(revoked.error());
  EXPECT_EQ(revoked->id.value, 2u);
  EXPECT_FALSE((*list_keys(database))[0].revoked);
}

TEST(Nodes, AnInvitationAgainKeepsTheOwner) {
  store::Database database = memory();
  ASSERT_TRUE(invite_node(database, "box", 1).ok());
  ASSERT_TRUE(database.execute("UPDATE nodes SET owner = 7 WHERE name = 'box'").ok());
  ASSERT_TRUE(revoke_node(database, "box", 2).ok());
  ASSERT_TRUE(invite_node(database, "box", 3).ok());
  const auto rows = *database.query("SELECT owner, invited, revoked FROM nodes");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].integer(0), 7);
  EXPECT_EQ(rows[0].integer(1), 3);
  EXPECT_TRUE(rows[0].is_null(2));
}

}  // namespace
}  // namespace flotilla::coordinator
