#include "flotilla/engine/script.h"

#include <gtest/gtest.h>

namespace flotilla::engine {
namespace {

using std::chrono::milliseconds;

TEST(Script, ReadsStepsOfEveryKind) {
  const auto script = parse_script(R"({"model": "m", "context_length": 100, "rules": [{
    "match": {"user": "hi"}, "delay_ms": 2, "start_ms": 5, "finish": "length",
    "steps": ["a", {"text": "b", "delay_ms": 7, "id": 9, "logprob": -2}, {"bytes": "F0 9F"},
      {"special": "<|channel>"}, {"wait_ms": 3}, {"hang": true}, {"nan": true}, {"end": true},
      {"fail": {"code": "unavailable", "message": "gone"}}, {"echo": "seed"}]}]})");
  ASSERT_TRUE(script.ok()) << script.error().message;
  EXPECT_EQ(script->models, std::vector<std::string>{"m"});
  const ScriptRule& rule = script->rules.at(0);
  EXPECT_EQ(rule.user, "hi");
  EXPECT_EQ(rule.finish, FinishReason::kLength);
  ASSERT_EQ(rule.steps.size(), 11u);
  EXPECT_EQ(rule.steps[0].kind, ScriptStep::Kind::kWait);
  EXPECT_EQ(rule.steps[1].delay, milliseconds(2));
  EXPECT_EQ(rule.steps[2].delay, milliseconds(7));
  EXPECT_EQ(rule.steps[2].id, 9);
  EXPECT_EQ(rule.steps[2].logprob, -2);
  EXPECT_EQ(rule.steps[3].bytes, "\xF0\x9F");
  EXPECT_TRUE(rule.steps[4].special);
  EXPECT_EQ(rule.steps[5].delay, milliseconds(3));
  EXPECT_EQ(rule.steps[6].kind, ScriptStep::Kind::kHang);
  EXPECT_EQ(rule.steps[7].error.code, ErrorCode::kModelFault);
  EXPECT_EQ(rule.steps[8].kind, ScriptStep::Kind::kEnd);
  EXPECT_EQ(rule.steps[9].error.message, "gone");
  EXPECT_EQ(rule.steps[10].kind, ScriptStep::Kind::kEcho);
}

TEST(Script, CutsRawStringsAtControlMarkers) {
  const auto script = parse_script(
      R"({"rules": [{"steps": ["<|channel>thought\nhm<channel|>Hi", {"text": "<|turn>"}]}]})");
  ASSERT_TRUE(script.ok()) << script.error().message;
  const auto& steps = script->rules[0].steps;
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_TRUE(steps[0].special);
  EXPECT_EQ(steps[1].bytes, "thought\nhm");
  EXPECT_TRUE(steps[2].special);
  EXPECT_EQ(steps[3].bytes, "Hi");
  EXPECT_FALSE(steps[4].special);  // "text" is never markup
}

TEST(Script, RepeatsAndSplitsWords) {
  const auto script =
      parse_script(R"({"rules": [{"steps": [{"repeat": 3, "steps": [{"words": "to be  or"}]}]}]})");
  ASSERT_TRUE(script.ok()) << script.error().message;
  ASSERT_EQ(script->rules[0].steps.size(), 9u);
  EXPECT_EQ(script->rules[0].steps[2].bytes, "  or");
}

TEST(Script, RefusalsNameThePlace) {
  const auto message = [](std::string_view text) {
    const auto script = parse_script(text);
    return script.ok() ? std::string("accepted") : script.error().message;
  };
  EXPECT_EQ(message(R"({"rules": [{"steps": [{"txt": "a"}]}]})"),
            "rules[0].steps[0]: unknown key 'txt'; did you mean 'text'?");
  EXPECT_EQ(message(R"({"rules": [{"steps": [{"bytes": "zz"}]}]})"),
            "rules[0].steps[0].bytes: must be hexadecimal digits");
  EXPECT_EQ(message(R"({"rules": [{"steps": [{"fail": "oops"}]}]})"),
            "rules[0].steps[0].fail: unknown error code 'oops'");
  EXPECT_EQ(message(R"({"rules": [{"steps": [{}]}]})"), "rules[0].steps[0]: says nothing to do");
  EXPECT_EQ(message(R"({"rules": [{"loop": true, "steps": [{"wait_ms": 1}]}]})"),
            "rules[0].loop: needs a step that emits something");
  EXPECT_EQ(message("{}"), "rules: must be an array");
  EXPECT_NE(message(R"({"rules": [{"steps": [{"repeat": 1000000, "steps": ["a", "b"]}]}]})")
                .find("more than 1000000 steps"),
            std::string::npos);
}

TEST(Script, AMissingFileIsNotFound) {
  const auto script = load_script("/nonexistent/script.json");
  ASSERT_FALSE(script.ok());
  EXPECT_EQ(script.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace flotilla::engine
