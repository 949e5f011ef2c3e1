#include "flotilla/coordinator/admin/admin_api.h"

#include <boost/json.hpp>
#include <set>

#include "flotilla/api/openapi.h"
#include "flotilla/coordinator/fleet_fixture.h"
#include "flotilla/json/json.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

constexpr const char* kKey = "an-admin-key-of-the-test";

class Admin : public Fleet {
 protected:
  const serving::ExtraRoute& route(const std::string& method, const std::string& path) {
    for (const serving::ExtraRoute& route : routes) {
      if (route.method == method && serving::path_matches(route.path, path)) return route;
    }
    ADD_FAILURE() << "no route " << method << " " << path;
    return routes.front();
  }
  // The status and the body of the answer; -1 when none came.
  std::pair<int, bj::value> call(const std::string& method, const std::string& path,
                                 const std::string& query = {}, const std::string& body = {}) {
    net::HttpRequest request;
    request.method = method;
    request.path = path;
    request.query = query;
    request.body = body;
    std::pair<int, bj::value> out{-1, {}};
    route(method, path).handle(request, [&](net::HttpResponse response) {
      out.first = static_cast<int>(response.status);
      auto value = json::parse(response.body);
      EXPECT_TRUE(value.ok()) << response.body;
      if (value.ok()) out.second = *value;
    });
    return out;
  }

  AdminAccess access{kKey};
  AdminApi api{access, [](std::function<void()> task) { task(); }, dispatcher, clock};
  std::vector<serving::ExtraRoute> routes = api.routes();
};

TEST_F(Admin, TheDescriptionListsEveryRouteAndNoOther) {
  const bj::value document = *json::parse(api::openapi_document());
  std::set<std::string> described, served;
  for (const auto& path : document.at("paths").as_object()) {
    const std::string_view name(path.key());
    const bool is_ours = name == "/v1/admin/nodes" || name == "/v1/admin/explain" ||
                         name == "/v1/admin/load" || name == "/v1/admin/unload";
    if (!is_ours) continue;  // those of money have a test of their own
    for (const auto& method : path.value().as_object()) {
      std::string verb(method.key());
      for (char& c : verb) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      described.insert(verb + " " + std::string(name));
      EXPECT_EQ(method.value().at("x-program"), "flotilla-coordinator");
      EXPECT_EQ(method.value().at("security"), *json::parse(R"([{"admin":[]}])"));
    }
  }
  for (const serving::ExtraRoute& route : routes) served.insert(route.method + " " + route.path);
  EXPECT_EQ(described, served);
}

TEST_F(Admin, EveryRouteAsksForTheKey) {
  net::HttpRequest request;
  for (const serving::ExtraRoute& route : routes) EXPECT_FALSE(route.admit(request).ok());
  request.headers.add("Authorization", std::string("Bearer ") + kKey);
  for (const serving::ExtraRoute& route : routes) EXPECT_TRUE(route.admit(request).ok());
}

TEST_F(Admin, NodesAreListedWithWhatTheyDo) {
  join("b", 2, {"m", "x"});
  auto a = join("a");
  ask();
  const auto [status, body] = call("GET", "/v1/admin/nodes");
  EXPECT_EQ(status, 200);
  ASSERT_EQ(body.at("data").as_array().size(), 2u);
  const bj::value& first = body.at("data").at(0);
  EXPECT_EQ(first.at("node"), "a");
  EXPECT_EQ(first.at("models").at(0).at("model"), "m");
  EXPECT_EQ(first.at("jobs").to_number<int>() + body.at("data").at(1).at("jobs").to_number<int>(),
            1);
  // Every member is described.
  const bj::value document = *json::parse(api::openapi_document());
  const auto& schemas = document.at("components").at("schemas");
  for (const auto& member : first.as_object()) {
    EXPECT_TRUE(schemas.at("AdminNode").at("properties").as_object().contains(member.key()))
        << member.key();
  }
  for (const auto& member : first.at("models").at(0).as_object()) {
    EXPECT_TRUE(schemas.at("AdminNodeModel").at("properties").as_object().contains(member.key()))
        << member.key();
  }
}

void expect_described(const bj::value& document, const bj::value& value,
                      const std::string& schema) {
  const auto& properties =
      document.at("components").at("schemas").at(schema).at("properties").as_object();
  for (const auto& member : value.as_object())
    EXPECT_TRUE(properties.contains(member.key())) << schema << "." << member.key();
}

TEST_F(Admin, AnExplanationTellsForEachNodeWhyAndWhenItMayChange) {
  auto a = join("a", 1);
  join("b", 4, {"x"});
  auto c = join("c", 1);
  ask();  // one of the two is full now
  const auto [status, body] = call("GET", "/v1/admin/explain", "model=m&prompt_tokens=1000");
  ASSERT_EQ(status, 200);
  EXPECT_EQ(body.at("prompt_tokens"), 1000);
  EXPECT_EQ(body.at("queued"), 0);
  EXPECT_EQ(body.at("counts"), *json::parse(R"({"candidate":1,"model_not_served":1,"no_slot":1})"));
  ASSERT_EQ(body.at("nodes").as_array().size(), 3u);
  const bj::value& first = body.at("nodes").at(0);
  EXPECT_TRUE(first.at("chosen").as_bool());
  EXPECT_TRUE(first.at("reason").is_null());
  EXPECT_EQ(first.at("expected").at("prefill").at("source"), "default");
  EXPECT_DOUBLE_EQ(first.at("expected").at("prefill").at("ms").as_double(), 2000);
  std::set<std::string> reasons;
  for (std::size_t i = 1; i < 3; ++i) {
    const bj::value& node = body.at("nodes").at(i);
    EXPECT_FALSE(node.at("chosen").as_bool());
    reasons.insert(std::string(node.at("reason").as_string()));
    if (node.at("reason") == "no_slot") {
      EXPECT_EQ(node.at("needed"), 2);
      EXPECT_EQ(node.at("available"), 1);
    }
  }
  EXPECT_EQ(reasons, (std::set<std::string>{"no_slot", "model_not_served"}));
  const bj::value document = *json::parse(api::openapi_document());
  expect_described(document, body, "AdminExplanation");
  expect_described(document, first, "AdminNodeVerdict");
  expect_described(document, first.at("expected").at("prefill"), "AdminTimePart");
}

TEST_F(Admin, AnExplanationMayBeOfOneNodeAndOtherLengths) {
  auto a = join("a");
  join("b");
  const auto [status, body] = call("GET", "/v1/admin/explain", "model=m&node=b");
  EXPECT_EQ(status, 200);
  ASSERT_EQ(body.at("nodes").as_array().size(), 1u);
  EXPECT_EQ(body.at("nodes").at(0).at("node"), "b");
  EXPECT_EQ(body.at("counts"), *json::parse(R"({"candidate":2})"));
  EXPECT_EQ(call("GET", "/v1/admin/explain", "model=m&node=z").first, 404);
  EXPECT_EQ(call("GET", "/v1/admin/explain", "model=z").first, 404);
  EXPECT_EQ(call("GET", "/v1/admin/explain").first, 400);
  EXPECT_EQ(call("GET", "/v1/admin/explain", "model=m&prompt_tokens=0").first, 400);
  EXPECT_EQ(call("GET", "/v1/admin/explain", "model=m&prompt_tokens=x").first, 400);
}

TEST_F(Admin, TheRoundTripComesFromHeartbeats) {
  auto a = join("a");
  beat(*a, 1);
  clock.advance(std::chrono::milliseconds(500));
  protocol::Heartbeat message;
  message.sequence = 2;
  message.acked_sequence = 1;
  message.ack_age_us = 460'000;
  say(*a, {}, message);
  const auto [status, body] = call("GET", "/v1/admin/explain", "model=m");
  const bj::value& network = body.at("nodes").at(0).at("expected").at("network");
  EXPECT_DOUBLE_EQ(network.at("ms").as_double(), 40);
  EXPECT_EQ(network.at("source"), "measured");
}

TEST_F(Admin, LoadsAndUnloadsAreOrdered) {
  auto a = join("a");
  EXPECT_EQ(call("POST", "/v1/admin/unload", "node=a&model=m").first, 202);
  EXPECT_EQ(a->all<protocol::Unload>().size(), 1u);
  EXPECT_EQ(call("POST", "/v1/admin/load", "node=a&model=m").first, 202);
  EXPECT_EQ(a->all<protocol::Load>().size(), 1u);
  EXPECT_EQ(call("POST", "/v1/admin/load", "node=z&model=m").first, 404);
  EXPECT_EQ(call("POST", "/v1/admin/load", "node=a").first, 400);
}

}  // namespace
}  // namespace flotilla::coordinator
