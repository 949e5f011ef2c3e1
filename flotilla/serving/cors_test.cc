#include "flotilla/serving/cors.h"

#include <gtest/gtest.h>

namespace flotilla::serving {
namespace {

net::HttpRequest from(std::string origin, std::string host = "api.example.com") {
  net::HttpRequest request;
  if (!origin.empty()) request.headers.add("Origin", std::move(origin));
  request.headers.add("Host", std::move(host));
  return request;
}
std::string allowed_for(const CorsPolicy& policy, const net::HttpRequest& request) {
  net::Headers headers;
  policy.add_headers(request, headers);
  return std::string(headers.find("access-control-allow-origin").value_or(""));
}

TEST(Cors, AllowsExactOriginsAndOpenPorts) {
  const CorsPolicy policy({"https://chat.example.com", "http://localhost:*"});
  EXPECT_TRUE(policy.allows("https://chat.example.com"));
  EXPECT_TRUE(policy.allows("http://localhost:3000"));
  EXPECT_TRUE(policy.allows("http://localhost"));
  for (const char* other : {"https://chat.example.com.evil.org", "http://chat.example.com",
                            "https://chat.example.com:8", "http://localhost:3000.evil.org",
                            "http://localhost:", "http://localhost.evil.org", "null", ""}) {
    EXPECT_FALSE(policy.allows(other)) << other;
  }
}

TEST(Cors, EchoesTheOriginAndVaries) {
  const CorsPolicy policy({"https://a.example"});
  EXPECT_EQ(allowed_for(policy, from("https://a.example")), "https://a.example");
  EXPECT_EQ(allowed_for(policy, from("https://b.example")), "");
  EXPECT_EQ(allowed_for(policy, from("")), "");
  net::Headers headers;
  policy.add_headers(from("https://b.example"), headers);
  EXPECT_EQ(headers.find("vary"), "Origin");
}

TEST(Cors, AStarNeverComesWithCredentials) {
  const CorsPolicy policy({"*"});
  net::Headers headers;
  policy.add_headers(from("https://b.example"), headers);
  EXPECT_EQ(headers.find("access-control-allow-origin"), "*");
  EXPECT_FALSE(headers.find("access-control-allow-credentials").has_value());
}

TEST(Cors, ForeignMeansAnotherHostThatIsNotAllowed) {
  const CorsPolicy policy({"https://a.example"});
  EXPECT_FALSE(policy.is_foreign(from("")));
  EXPECT_FALSE(policy.is_foreign(from("https://a.example")));
  EXPECT_TRUE(policy.is_foreign(from("https://b.example")));
  EXPECT_TRUE(policy.is_foreign(from("null")));
}

TEST(Cors, PagesOfTheServersOwnAddressAreNotForeignUnlessTheNameCouldBeRebound) {
  const CorsPolicy policy({"https://a.example"});
  const auto page_of = [](const std::string& host) {
    net::HttpRequest request;
    request.headers.add("Host", host);
    request.headers.add("Origin", "http://" + host);
    return request;
  };
  for (const char* own : {"127.0.0.1:8080", "[::1]:8080", "localhost:8080", "192.168.1.7"}) {
    EXPECT_FALSE(policy.is_foreign(page_of(own))) << own;
  }
  for (const char* name : {"evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.org"}) {
    EXPECT_TRUE(policy.is_foreign(page_of(name))) << name;
  }
}

TEST(Cors, ConfigurationIsChecked) {
  for (const char* good : {"*", "https://a.example", "http://localhost:*", "http://127.0.0.1:8080",
                           "app://obsidian.md"}) {
    EXPECT_TRUE(check_origin(good).ok()) << good;
  }
  for (const char* bad :
       {"", "a.example", "https://", "https://a/", "https://*.a", "https://a b", "http://a:*:*"}) {
    EXPECT_FALSE(check_origin(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace flotilla::serving
