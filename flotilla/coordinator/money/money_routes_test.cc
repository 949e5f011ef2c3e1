// The routes of keys, usage and money, from a call to its answer.
#include "flotilla/coordinator/money/money_routes.h"

#include <boost/json.hpp>
#include <cctype>
#include <future>
#include <set>

#include "flotilla/api/openapi.h"
#include "flotilla/coordinator/money/bank.h"
#include "flotilla/coordinator/money/testing.h"
#include "flotilla/json/json.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;
using serving::ExtraRoute;

constexpr const char* kAdminKey = "an-admin-key-of-the-test";

class MoneyRoutes : public Books {
 protected:
  MoneyRoutes() {
    alice = account("alice", 1'000);
    bob = account("bob", 0);
    alice_key = make_key_of(alice);
    bank = std::move(*Bank::open(open(), clock, {}, nullptr));
    reader = std::make_unique<store::Worker>(open(), 16);
    routes = money_routes({*reader, *bank, keys, admins, clock});
  }
  struct Got {
    unsigned status = 0;
    std::string text;
    bj::value body;
  };
  Got call(const std::string& method, const std::string& path, const std::string& body = "",
           const std::string& query = "", const std::string& with_key = "") {
    for (const ExtraRoute& route : routes) {
      if (route.method != method || !serving::path_matches(route.path, path)) continue;
      net::HttpRequest request;
      request.method = method;
      request.path = path;
      request.query = query;
      request.body = body;
      const std::string key = path.starts_with("/v1/admin/") ? kAdminKey : alice_key;
      request.headers.add("Authorization", "Bearer " + (with_key.empty() ? key : with_key));
      if (Status admitted = route.admit(request); !admitted.ok()) {
        return {admitted.error().code == ErrorCode::kUnauthenticated ? 401u : 403u, "", nullptr};
      }
      std::promise<net::HttpResponse> answer;
      route.handle(request, [&](net::HttpResponse got) { answer.set_value(std::move(got)); });
      const net::HttpResponse got = answer.get_future().get();
      Got out{got.status, got.body, nullptr};
      if (auto parsed = json::parse(got.body); parsed.ok()) out.body = std::move(*parsed);
      return out;
    }
    ADD_FAILURE() << method << " " << path;
    return {};
  }
  // As the running server does within a second.
  void reload_keys() { keys.load(*list_keys(database)); }
  std::string make_key_of(const Account& owner) {
    KeyOrder order{.name = "k", .account = owner.id, .expires = {}, .spend_limit = {}};
    const std::string made = create_key(database, order, kStart)->key;
    reload_keys();
    return made;
  }
  FakeClock clock;
  Account alice, bob;
  std::string alice_key;
  ApiKeyStore keys;
  const AdminAccess admins{kAdminKey};
  std::unique_ptr<Bank> bank;
  std::unique_ptr<store::Worker> reader;
  std::vector<ExtraRoute> routes;
};
INSTANTIATE_TEST_SUITE_P(On, MoneyRoutes, ::testing::ValuesIn(store::test_backends()),
                         store::backend_name);

TEST_P(MoneyRoutes, AreInTheDescription) {
  const bj::value document = *json::parse(api::openapi_document());
  const bj::object& paths = document.at("paths").as_object();
  std::set<std::string> made;
  for (const ExtraRoute& route : routes) {
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    ASSERT_TRUE(paths.contains(route.path)) << route.path;
    const bj::object& known = paths.at(route.path).as_object();
    ASSERT_TRUE(known.contains(method)) << method << route.path;
    EXPECT_EQ(known.at(method).at("x-program"), "flotilla-coordinator");
    EXPECT_EQ(known.at(method).as_object().contains("security"),
              route.path.starts_with("/v1/admin/"));
    made.insert(route.path);
  }
  for (const auto& path : paths) {
    const std::string_view name(path.key());
    for (const char* ours :
         {"/v1/keys", "/v1/usage", "/v1/account", "/v1/admin/usage", "/v1/admin/accounts",
          "/v1/admin/deposits", "/v1/admin/withdrawals", "/v1/admin/prices"}) {
      if (name.starts_with(ours)) {
        EXPECT_TRUE(made.contains(std::string(name))) << name;
      }
    }
  }
}

TEST_P(MoneyRoutes, AnOrdinaryKeyIsNotAnAdmins) {
  for (const ExtraRoute& route : routes) {
    const bool is_admins = route.path.starts_with("/v1/admin/");
    const std::string path = route.path.substr(0, route.path.find('{'));
    const std::string asked = path.ends_with('/') ? path + "1" : path;
    EXPECT_EQ(call(route.method, asked, "{}", "", "fl-nobody").status, 401u) << asked;
    const unsigned other =
        call(route.method, asked, "{}", "", is_admins ? alice_key : kAdminKey).status;
    EXPECT_EQ(other, 401u) << asked;
  }
}

TEST_P(MoneyRoutes, AnAccountSeesItselfAlone) {
  const Got mine = call("GET", "/v1/account");
  EXPECT_EQ(mine.status, 200u);
  EXPECT_EQ(mine.body.at("name"), "alice");
  EXPECT_EQ(mine.body.at("available_micro"), 1'000);
  make_key_of(bob);
  const Got listed = call("GET", "/v1/keys");
  ASSERT_EQ(listed.body.at("data").as_array().size(), 1u);
  EXPECT_EQ(listed.body.at("data").at(0).at("id"), "1");
  EXPECT_FALSE(listed.body.at("data").at(0).as_object().contains("hash"));
}

TEST_P(MoneyRoutes, KeysAreMadeAndRevoked) {
  const Got made = call("POST", "/v1/keys",
                        R"({"name":"ci","expires_at":1800000000,"spend_limit_micro":500,
                            "requests_per_minute":10})");
  ASSERT_EQ(made.status, 200u) << made.text;
  EXPECT_TRUE(made.body.at("key").as_string().starts_with("fl-"));
  const std::string fresh(made.body.at("key").as_string());
  reload_keys();
  const KeyRecord stored = list_keys(database)->back();
  EXPECT_EQ(stored.account, alice.id);
  EXPECT_EQ(stored.expires, 1'800'000'000);
  EXPECT_EQ(stored.spend_limit, 500);
  EXPECT_EQ(stored.limits.requests, 10);
  EXPECT_EQ(stored.hash, hash_key(fresh));
  const std::string path = "/v1/keys/" + std::to_string(stored.id.value);
  // A key with limits makes none without, and revokes itself only.
  EXPECT_EQ(call("POST", "/v1/keys", R"({"name":"x"})", "", fresh).status, 403u);
  EXPECT_EQ(call("DELETE", "/v1/keys/1", "", "", fresh).status, 403u);
  const std::string of_bob = make_key_of(bob);
  EXPECT_EQ(call("DELETE", path, "", "", of_bob).status, 404u) << "another account's";
  EXPECT_EQ(call("DELETE", "/v1/keys/ci").status, 404u) << "by id only";
  const Got ended = call("DELETE", path);
  EXPECT_EQ(ended.status, 200u);
  // The whole key, as the document says, with its id as everywhere.
  EXPECT_EQ(ended.body.at("id").as_string(), std::to_string(stored.id.value));
  EXPECT_EQ(ended.body.at("name").as_string(), stored.name);
  EXPECT_TRUE(ended.body.at("revoked_at").is_int64());
  EXPECT_TRUE(list_keys(database)->at(1).revoked);
}

TEST_P(MoneyRoutes, BadBodiesAreRefusedWithTheField) {
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({})", "name"},
           {R"({"name":""})", "name"},
           {R"({"name":"a","account":"bob"})", "account"},
           {R"({"name":"a","expires_at":1})", "expires_at"},
           {R"({"name":"a","spend_limit_micro":-1})", "spend_limit_micro"},
           {R"({"name":"a","requests_per_minute":0})", "requests_per_minute"}}) {
    const Got refused = call("POST", "/v1/keys", body);
    EXPECT_EQ(refused.status, 400u) << body;
    EXPECT_EQ(refused.body.at("error").at("param"), bj::string_view(param)) << body;
  }
  EXPECT_EQ(call("POST", "/v1/keys", "[1]").status, 400u);
  EXPECT_EQ(call("POST", "/v1/keys", "{").status, 400u);
}

TEST_P(MoneyRoutes, AdminsMoveMoneyOncePerKey) {
  const std::string order = R"({"account":"bob","amount_micro":700,"idempotency_key":"i1"})";
  EXPECT_EQ(call("POST", "/v1/admin/deposits", order).body.at("balance_micro"), 700);
  const Got again = call("POST", "/v1/admin/deposits", order);
  EXPECT_EQ(again.body.at("balance_micro"), 700);
  EXPECT_EQ(again.body.at("repeated"), true);
  const Got too_much = call("POST", "/v1/admin/withdrawals",
                            R"({"account":"bob","amount_micro":701,"idempotency_key":"i2"})");
  EXPECT_EQ(too_much.status, 402u);
  EXPECT_EQ(too_much.body.at("error").at("code"), "insufficient_quota");
  EXPECT_EQ(call("POST", "/v1/admin/withdrawals",
                 R"({"account":"bob","amount_micro":1,"idempotency_key":"i1"})")
                .status,
            409u);
  EXPECT_EQ(call("POST", "/v1/admin/deposits",
                 R"({"account":"nobody","amount_micro":1,"idempotency_key":"i3"})")
                .status,
            404u);
  EXPECT_EQ(faults(clock.unix_seconds()), "");
}

TEST_P(MoneyRoutes, AdminsMakeAccountsAndPrices) {
  EXPECT_EQ(call("POST", "/v1/admin/accounts", R"({"name":"carol","requests_per_minute":5})")
                .body.at("requests_per_minute"),
            5);
  EXPECT_EQ(call("POST", "/v1/admin/accounts", R"({"name":"carol"})").status, 409u);
  EXPECT_EQ(call("PATCH", "/v1/admin/accounts/carol", R"({"output_tokens_per_minute":9})")
                .body.at("requests_per_minute"),
            nullptr);
  EXPECT_EQ(call("GET", "/v1/admin/accounts").body.at("data").as_array().size(), 6u);
  const Got price = call("POST", "/v1/admin/prices",
                         R"({"model":"m","input_micro":300000,"output_micro":900000})");
  EXPECT_EQ(price.body.at("cached_input_micro"), 300'000);
  EXPECT_EQ(price.body.at("since"), clock.unix_seconds());
  EXPECT_EQ(call("POST", "/v1/admin/prices",
                 R"({"model":"m","input_micro":1,"cached_input_micro":2,"output_micro":1})")
                .status,
            400u);
  EXPECT_EQ(call("GET", "/v1/admin/prices").body.at("data").as_array().size(), 1u);
}

TEST_P(MoneyRoutes, UsageComesAsJsonAndCsv) {
  const std::int64_t today = day_of(clock.unix_seconds());
  ASSERT_TRUE(add_usage(database, {{{today, alice.id.value, 1, "m"}, {2, 30, 10, 40, 50}},
                                   {{today, bob.id.value, 9, "m"}, {1, 1, 1, 1, 1}}})
                  .ok());
  const Got mine = call("GET", "/v1/usage");
  ASSERT_EQ(mine.body.at("data").as_array().size(), 1u) << mine.text;
  EXPECT_EQ(mine.body.at("data").at(0).at("charged_micro"), 50);
  EXPECT_EQ(call("GET", "/v1/usage", "", "format=csv&group_by=model").text,
            "model,requests,input_tokens,cached_input_tokens,output_tokens,charged_micro\r\n"
            "m,2,30,10,40,50\r\n");
  EXPECT_EQ(call("GET", "/v1/usage", "", "format=xml").status, 400u);
  EXPECT_EQ(call("GET", "/v1/usage", "", "group_by=account").status, 400u);
  EXPECT_EQ(
      call("GET", "/v1/admin/usage", "", "group_by=account").body.at("data").as_array().size(), 2u);
}

TEST_P(MoneyRoutes, AnAccountMakesNoMoreThanAThousandKeys) {
  ASSERT_TRUE(
      database
          .transaction([&]() -> Status {
            for (std::int64_t i = 0; i < 999; ++i) {
              auto made = database.execute(
                  "INSERT INTO api_keys (id, name, prefix, hash, created, account) VALUES "
                  "(:p1, 'k', 'fl-', :p2, 0, :p3)",
                  {1'000 + i, std::to_string(i), static_cast<std::int64_t>(alice.id.value)});
              if (!made.ok()) return std::move(made).error();
            }
            return ok_status();
          })
          .ok());
  const Got refused = call("POST", "/v1/keys", R"({"name":"one more"})");
  EXPECT_EQ(refused.status, 400u);
  EXPECT_THAT(refused.text, ::testing::HasSubstr("1000"));
  EXPECT_EQ(call("DELETE", "/v1/keys/1500").status, 200u);
  EXPECT_EQ(call("POST", "/v1/keys", R"({"name":"one more"})").status, 200u);
}

TEST_P(MoneyRoutes, WhatTheDatabaseSaysIsNotTheCustomers) {
  ASSERT_TRUE(database.execute("ALTER TABLE accounts RENAME TO elsewhere").ok());
  const Got got = call("GET", "/v1/account");
  EXPECT_EQ(got.status, 503u);
  EXPECT_THAT(got.text, ::testing::HasSubstr("the accounts cannot be reached"));
  EXPECT_THAT(got.text, ::testing::Not(::testing::HasSubstr("accounts WHERE")));
  EXPECT_THAT(got.text, ::testing::Not(::testing::HasSubstr("no such table")));
}

}  // namespace
}  // namespace flotilla::coordinator
