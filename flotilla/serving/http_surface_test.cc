#include "flotilla/serving/http_surface.h"

#include "flotilla/serving/replies.h"
#include "flotilla/serving/testing.h"

namespace flotilla::serving {
namespace {

using Surface = SurfaceTest;
const std::string kBody = R"({"model":"m","messages":[{"role":"user","content":"x"}]})";

TEST_F(Surface, ListsModels) {
  const auto body = body_json(*request("GET", "/v1/models"));
  EXPECT_EQ(body.at("object"), "list");
  EXPECT_EQ(body.at("data").at(0).at("id"), "org/tiny");
  EXPECT_EQ(body.at("data").at(0).at("context_length"), 2048);
}

TEST_F(Surface, FindsAModelWhoseNameHasSlashes) {
  EXPECT_EQ(body_json(*request("GET", "/v1/models/org/tiny")).at("id"), "org/tiny");
  auto missing = request("GET", "/v1/models/org");
  EXPECT_EQ(missing->head.status, 404u);
  EXPECT_EQ(body_json(*missing).at("error").at("code"), "model_not_found");
}

TEST_F(Surface, UnknownUrlsAndWrongMethodsAreOpenAIErrors) {
  for (const char* path :
       {"/", "/v1", "/v1/chat", "/v1/chat/completions/", "/v1/models/", "/V1/models", "/metrics"}) {
    auto exchange = request("GET", path);
    EXPECT_EQ(exchange->head.status, 404u) << path;
    EXPECT_EQ(body_json(*exchange).at("error").at("type"), "invalid_request_error") << path;
  }
  auto exchange = request("GET", "/v1/chat/completions");
  EXPECT_EQ(exchange->head.status, 405u);
  EXPECT_EQ(exchange->header("allow"), "POST, OPTIONS");
  EXPECT_EQ(body_json(*exchange).at("error").at("code"), "method_not_allowed");
  EXPECT_EQ(request("POST", "/v1/models")->head.status, 405u);
  EXPECT_EQ(request("DELETE", "/healthz")->head.status, 405u);
}

TEST_F(Surface, HeadIsAnsweredWhereGetIs) {
  EXPECT_EQ(request("HEAD", "/healthz")->head.status, 200u);
  EXPECT_EQ(request("HEAD", "/v1/models")->head.status, 200u);
  EXPECT_EQ(request("HEAD", "/v1/chat/completions")->head.status, 405u);
}

TEST_F(Surface, WhoeverMayNotAskIsRefusedByTheHeadAlone) {
  backend.key = "K";
  net::HttpRequest head;
  head.method = "POST";
  head.path = "/v1/chat/completions";
  auto refusal = surface().check_head(head);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 401u);
  EXPECT_TRUE(refusal->headers.find("x-request-id"));
  head.headers.add("Authorization", "Bearer K");
  EXPECT_FALSE(surface().check_head(head));
  head.path = "/healthz";
  head.method = "GET";
  EXPECT_EQ(surface().check_head(head)->status, 400u);
  head.path = "/v1/nothing";
  EXPECT_EQ(surface().check_head(head)->status, 404u);
}

TEST_F(Surface, EveryVariantOfTheKeyOpensEveryRoute) {
  backend.key = "K";
  const std::vector<std::vector<std::pair<std::string, std::string>>> good = {
      {{"Authorization", "Bearer K"}},
      {{"authorization", "bearer K"}},
      {{"Authorization", "Bearer  K"}},
      {{"x-api-key", "K"}}};
  for (const auto& headers : good) {
    EXPECT_EQ(request("GET", "/v1/models", "", headers)->head.status, 200u);
    EXPECT_EQ(request("GET", "/v1/models/org/tiny", "", headers)->head.status, 200u);
    backend.calls.clear();
    auto exchange = request("POST", "/v1/chat/completions", kBody, headers);
    emit(finish());
    EXPECT_EQ(exchange->head.status, 200u);
  }
}

TEST_F(Surface, WrongKeysGet401OnEveryRoute) {
  backend.key = "K";
  const std::vector<std::vector<std::pair<std::string, std::string>>> bad = {
      {},
      {{"Authorization", ""}},
      {{"Authorization", "Bearer"}},
      {{"Authorization", "Bearer K2"}},
      {{"Authorization", "Bearer K"}, {"x-api-key", "J"}},
      {{"Authorization", "Bearer K\n"}},
      {{"x-api-key", "K "}}};
  for (const auto& headers : bad) {
    for (const char* path : {"/v1/models", "/v1/models/org/tiny"}) {
      auto exchange = request("GET", path, "", headers);
      EXPECT_EQ(exchange->head.status, 401u);
      EXPECT_EQ(body_json(*exchange).at("error").at("code"), "invalid_api_key");
      EXPECT_NE(exchange->header("www-authenticate"), "");
      EXPECT_EQ(exchange->body.find("K2"), std::string::npos);
    }
    // Before the body is even looked at.
    EXPECT_EQ(request("POST", "/v1/chat/completions", "{:", headers)->head.status, 401u);
  }
  EXPECT_TRUE(backend.calls.empty());
}

TEST_F(Surface, WithoutConfiguredKeysEverybodyIsLocal) {
  for (const auto& headers : std::vector<std::vector<std::pair<std::string, std::string>>>{
           {},
           {{"Authorization", "Bearer anything"}},
           {{"Authorization", "Bearer "}},
           {{"x-api-key", ""}}}) {
    EXPECT_EQ(request("GET", "/v1/models", "", headers)->head.status, 200u);
  }
}

TEST_F(Surface, ProbesNeedNoKey) {
  backend.key = "K";
  options.metrics = [] { return std::string("up 1\n"); };
  EXPECT_EQ(request("GET", "/healthz")->head.status, 200u);
  EXPECT_EQ(request("GET", "/readyz")->head.status, 200u);
  backend.why_not = "no \"node\" is up";
  auto exchange = request("GET", "/readyz");
  EXPECT_EQ(exchange->head.status, 503u);
  EXPECT_EQ(body_json(*exchange).at("reason"), "no \"node\" is up");
  EXPECT_EQ(request("GET", "/healthz")->head.status, 200u);
  auto metrics = request("GET", "/metrics");
  EXPECT_EQ(metrics->body, "up 1\n");
  EXPECT_TRUE(metrics->header("content-type").starts_with("text/plain"));
}

TEST_F(Surface, PreflightNeedsNoKey) {
  backend.key = "K";
  options.allowed_origins = {"https://chat.example.com"};
  auto exchange = request("OPTIONS", "/v1/chat/completions", "",
                          {{"Origin", "https://chat.example.com"},
                           {"Access-Control-Request-Method", "POST"},
                           {"Access-Control-Request-Headers",
                            "authorization,content-type,x-api-key,anthropic-version"}});
  EXPECT_EQ(exchange->head.status, 204u);
  EXPECT_EQ(exchange->header("access-control-allow-origin"), "https://chat.example.com");
  EXPECT_EQ(exchange->header("access-control-allow-headers"),
            "authorization,content-type,x-api-key,anthropic-version");
  EXPECT_NE(exchange->header("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(exchange->header("access-control-allow-credentials"), "");
  EXPECT_EQ(request("OPTIONS", "/v1/chat/completions", "", {{"Origin", "https://evil.example"}})
                ->head.status,
            403u);
  EXPECT_EQ(request("OPTIONS", "/v1/models")->head.status, 204u);
}

TEST_F(Surface, APageCanReadTheRefusal) {
  backend.key = "K";
  options.allowed_origins = {"https://chat.example.com"};
  auto exchange =
      request("POST", "/v1/chat/completions", kBody, {{"Origin", "https://chat.example.com"}});
  EXPECT_EQ(exchange->head.status, 401u);
  EXPECT_EQ(exchange->header("access-control-allow-origin"), "https://chat.example.com");
  auto stream = request("POST", "/v1/chat/completions",
                        R"({"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]})",
                        {{"Origin", "https://chat.example.com"}, {"x-api-key", "K"}});
  emit(content("a"));
  EXPECT_EQ(stream->header("access-control-allow-origin"), "https://chat.example.com");
  emit(finish());
}

TEST_F(Surface, PagesOfOtherHostsCannotUseASurfaceWithoutKeys) {
  // A form post as text/plain needs no preflight.
  auto exchange = request("POST", "/v1/chat/completions", kBody,
                          {{"Origin", "https://evil.example"},
                           {"Host", "127.0.0.1:8080"},
                           {"Content-Type", "text/plain"}});
  EXPECT_EQ(exchange->head.status, 403u);
  EXPECT_TRUE(backend.calls.empty());
  auto own = request("POST", "/v1/chat/completions", kBody,
                     {{"Origin", "http://127.0.0.1:8080"}, {"Host", "127.0.0.1:8080"}});
  emit(finish());
  EXPECT_EQ(own->head.status, 200u);
}

TEST_F(Surface, RequestIdsComeBackOrAreMade) {
  EXPECT_EQ(
      request("GET", "/healthz", "", {{"X-Request-ID", "abc:1.2-3_4"}})->header("x-request-id"),
      "abc:1.2-3_4");
  for (const std::string& bad : {std::string("a b"), std::string("x\r\nSet-Cookie: y"),
                                 std::string(200, 'a'), std::string()}) {
    const std::string id =
        request("GET", "/nowhere", "", {{"X-Request-ID", bad}})->header("x-request-id");
    EXPECT_TRUE(id.starts_with("req_")) << id;
  }
}

TEST_F(Surface, BodiesOverTheLimitAreRefusedWithBothNumbers) {
  options.session.max_body_bytes = 100;
  auto exchange = request("POST", "/v1/chat/completions", std::string(101, ' '));
  EXPECT_EQ(exchange->head.status, 413u);
  EXPECT_NE(exchange->body.find("101"), std::string::npos);
  EXPECT_NE(exchange->body.find("100"), std::string::npos);
}

TEST_F(Surface, CompressedBodiesAreRefusedByName) {
  auto exchange =
      request("POST", "/v1/chat/completions", "\x1f\x8b", {{"Content-Encoding", "gzip"}});
  EXPECT_EQ(exchange->head.status, 415u);
}

TEST(Replies, ProtocolErrorsHaveTheShapeOfAllErrors) {
  const auto response = protocol_error_reply(431, "the head is too large");
  EXPECT_EQ(response.status, 431u);
  EXPECT_EQ(boost::json::parse(response.body).at("error").at("message"), "the head is too large");
}

TEST(ExtraRoutes, BracesStandForOneSegment) {
  EXPECT_TRUE(path_matches("/v1/admin/nodes", "/v1/admin/nodes"));
  EXPECT_TRUE(path_matches("/v1/keys/{id}", "/v1/keys/7"));
  EXPECT_TRUE(path_matches("/v1/keys/{id}/rotate", "/v1/keys/7/rotate"));
  for (const char* path : {"/v1/keys", "/v1/keys/", "/v1/keys/7/", "/v1/keys/7/rotate", "/v1/key/7",
                           "v1/keys/7", "", "/", "/v1/keys//7"}) {
    EXPECT_FALSE(path_matches("/v1/keys/{id}", path)) << path;
  }
}

class WithExtraRoutes : public SurfaceTest {
 protected:
  void SetUp() override {
    options.allowed_origins = {"https://a.example"};
    const auto add = [&](const char* method) {
      options.extra_routes.push_back(
          {method, "/v1/things/{id}", "things",
           [](const net::HttpRequest& r) {
             return r.headers.find("x-secret")
                        ? ok_status()
                        : Status(Error{ErrorCode::kUnauthenticated, "the secret is needed"});
           },
           [this, method](const net::HttpRequest& r, ExtraRoute::Reply reply) {
             seen.push_back(method + r.path + r.body);
             later = std::move(reply);
           }});
    };
    add("GET");
    add("DELETE");
  }
  void TearDown() override {
    later = nullptr;
    SurfaceTest::TearDown();
  }
  std::vector<std::string> seen;
  ExtraRoute::Reply later;
};

TEST_F(WithExtraRoutes, AnAnswerMayComeLaterAndCarriesWhatAllAnswersCarry) {
  auto exchange =
      request("DELETE", "/v1/things/7", "{}", {{"x-secret", "s"}, {"Origin", "https://a.example"}});
  EXPECT_FALSE(exchange->sent);
  EXPECT_EQ(seen, std::vector<std::string>{"DELETE/v1/things/7{}"});
  later(json_reply(202, "{}"));
  EXPECT_EQ(exchange->head.status, 202u);
  EXPECT_FALSE(exchange->header("x-request-id").empty());
  EXPECT_EQ(exchange->header("access-control-allow-origin"), "https://a.example");
}

TEST_F(WithExtraRoutes, AnAnswerThatComesAfterTheSurfaceHasGoneIsSent) {
  auto exchange = request("GET", "/v1/things/7", {}, {{"x-secret", "s"}});
  surface_.reset();
  later(json_reply(200, "{}"));
  EXPECT_EQ(exchange->head.status, 200u);
}

TEST_F(WithExtraRoutes, WhoeverMayNotIsRefusedByTheHeadAlone) {
  EXPECT_EQ(request("GET", "/v1/things/7")->head.status, 401u);
  net::HttpRequest head;
  head.method = "DELETE";
  head.path = "/v1/things/7";
  EXPECT_EQ(surface().check_head(head)->status, 401u);
  head.headers.add("x-secret", "s");
  EXPECT_FALSE(surface().check_head(head));
  head.method = "GET";
  EXPECT_EQ(surface().check_head(head)->status, 400u);  // a GET with a body
  EXPECT_TRUE(seen.empty());
}

TEST_F(WithExtraRoutes, OtherMethodsAreNamed) {
  auto exchange = request("PUT", "/v1/things/7", {}, {{"x-secret", "s"}});
  EXPECT_EQ(exchange->head.status, 405u);
  EXPECT_EQ(exchange->header("allow"), "GET, DELETE, OPTIONS");
  EXPECT_EQ(request("OPTIONS", "/v1/things/7")->head.status, 204u);
  EXPECT_EQ(request("GET", "/v1/things")->head.status, 404u);
}

}  // namespace
}  // namespace flotilla::serving
