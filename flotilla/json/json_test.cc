#include "flotilla/json/json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace flotilla::json {
namespace {

TEST(Json, RefusesWhatWouldBeGuessedAt) {
  for (const char* text : {"", "{", "{:", "[1,]", "nul", "\"\\ud83d\"", "\"\xC4\xE3\"", "1e999",
                           "{\"a\":1,\"a\":2}", "{\"x\":{\"a\":1,\"a\":2}}", "1 2", "\"\\u00\""}) {
    EXPECT_FALSE(parse(text).ok()) << text;
  }
}

TEST(Json, ErrorsDoNotEchoTheText) {
  EXPECT_EQ(parse("{\"secret\": oops}").error().message.find("secret"), std::string::npos);
}

TEST(Json, BoundsDepthAndSize) {
  EXPECT_TRUE(parse(std::string(60, '[') + std::string(60, ']')).ok());
  EXPECT_FALSE(parse(std::string(100000, '[')).ok());
  EXPECT_EQ(parse("[1,2,3]", {.max_bytes = 4}).error().code, ErrorCode::kTooLarge);
}

TEST(Json, SkipsAByteOrderMarkAndKeepsKeyOrder) {
  const auto value = parse("\xEF\xBB\xBF{\"b\":1,\"a\":[\"x\\u0000y\"]}");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(serialize(*value), "{\"b\":1,\"a\":[\"x\\u0000y\"]}");
}

TEST(Json, TypedReadsNameTheField) {
  const auto value = parse(R"({"n":3.0,"f":0.5,"s":"x","z":null,"big":1e300})");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(get_int(*value, "n", 0, 9)->value(), 3);
  EXPECT_FALSE(get_int(*value, "f", 0, 9).ok());
  EXPECT_FALSE(get_int(*value, "big", 0, 9).ok());
  EXPECT_FALSE(get_string(*value, "z")->has_value());
  EXPECT_EQ(get_int(*value, "n", 5, 9, "a.b").error().param, "a.b.n");
  EXPECT_EQ(require_string(*value, "missing").error().message, "'missing' is missing");
  EXPECT_FALSE(get_double(*value, "s", 0, 1).ok());
}

}  // namespace
}  // namespace flotilla::json
