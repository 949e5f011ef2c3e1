#include "flotilla/coordinator/routing/route_ask.h"

#include <gtest/gtest.h>

#include "flotilla/json/json.h"

namespace flotilla::coordinator {
namespace {

RouteAsk ask(const std::string& messages, const std::string& tenant = "t",
             const std::string& more = {}) {
  auto body = json::parse(R"({"model":"m","messages":[)" + messages + "]" + more + "}");
  EXPECT_TRUE(body.ok());
  auto request = api::parse_chat_request(*body);
  EXPECT_TRUE(request.ok()) << request.error().message;
  return route_ask(*request, tenant);
}

const std::string kSystem = R"({"role":"system","content":"You are brief."})";
const std::string kFirst = R"(,{"role":"user","content":"What is a flotilla?"})";
const std::string kSecond =
    R"(,{"role":"assistant","content":"Boats."},{"role":"user","content":"How many?"})";

TEST(RouteAsk, ALaterTurnBeginsWithTheEarlierOnes) {
  const RouteAsk one = ask(kSystem + kFirst), two = ask(kSystem + kFirst + kSecond);
  ASSERT_EQ(one.prefixes.size(), 2u);
  ASSERT_EQ(two.prefixes.size(), 4u);
  EXPECT_EQ(two.prefixes[0].hash, one.prefixes[0].hash);
  EXPECT_EQ(two.prefixes[1].hash, one.prefixes[1].hash);
  EXPECT_NE(two.prefixes[3].hash, one.prefixes[1].hash);
  EXPECT_LT(two.prefixes[1].bytes, two.prefixes[3].bytes);
  EXPECT_EQ(two.prefixes.back().bytes, two.prompt_bytes);
}

TEST(RouteAsk, TenantsModelsToolsAndRolesAreToldApart) {
  const std::uint64_t hash = ask(kSystem + kFirst).prefixes[1].hash;
  EXPECT_NE(ask(kSystem + kFirst, "other").prefixes[1].hash, hash);
  const std::string tool =
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  EXPECT_NE(ask(kSystem + kFirst, "t", tool).prefixes[1].hash, hash);
  const std::string as_assistant = R"(,{"role":"assistant","content":"What is a flotilla?"})";
  EXPECT_NE(ask(kSystem + as_assistant).prefixes[1].hash, hash);
}

TEST(RouteAsk, LengthsAreThoseOfTheText) {
  const std::string text(4000, 'x');
  const RouteAsk one = ask(R"({"role":"user","content":")" + text + "\"}");
  EXPECT_GE(one.prompt_bytes, 4000u);
  EXPECT_LT(one.prompt_bytes, 4100u);
  EXPECT_EQ(ask(kSystem + kFirst, "t", R"(,"max_tokens":7)").max_tokens, 7);
}

TEST(RouteAsk, CompletionsAreCutIntoBeginnings) {
  api::ChatRequest request;
  request.model = "m";
  request.is_completion = true;
  request.prompt = std::string(5000, 'a');
  const RouteAsk one = route_ask(request, "t");
  EXPECT_EQ(one.prefixes.size(), 3u);
  request.prompt += "more";
  const RouteAsk longer = route_ask(request, "t");
  EXPECT_EQ(longer.prefixes[1].hash, one.prefixes[1].hash);
  EXPECT_NE(longer.prefixes[2].hash, one.prefixes[2].hash);
  request.prompt.clear();
  request.prompt_ids = {1, 2, 3};
  EXPECT_EQ(route_ask(request, "t").prompt_tokens, 3);
}

TEST(RouteAsk, VeryLongConversationsAreBounded) {
  std::string messages = kSystem;
  for (int i = 0; i < 2000; ++i) messages += R"(,{"role":"user","content":"a"})";
  const RouteAsk one = ask(messages);
  EXPECT_LE(one.prefixes.size(), 512u);
  EXPECT_EQ(one.prefixes.front().hash, ask(kSystem).prefixes.front().hash);
  EXPECT_EQ(one.prefixes.back().bytes, one.prompt_bytes);
}

}  // namespace
}  // namespace flotilla::coordinator
