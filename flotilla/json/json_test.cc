#include "flotilla/json/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

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
  EXPECT_TRUE(parse("[1,{\"a\":\"x\"},[]]", {.max_values = 5}).ok());
  EXPECT_EQ(parse("[1,{\"a\":\"x\"},[]]", {.max_values = 4}).error().code, ErrorCode::kTooLarge);
}

TEST(Json, SkipsAByteOrderMarkAndKeepsKeyOrder) {
  const auto value = parse("\xEF\xBB\xBF{\"b\":1,\"a\":[\"x\\u0000y\"]}");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(serialize(*value), "{\"b\":1,\"a\":[\"x\\u0000y\"]}");
}

TEST(Json, ReadsNumbersExactly) {
  std::mt19937_64 random(7);
  int read = 0;
  while (read < 20000) {
    const double x = std::bit_cast<double>(random());
    if (!std::isfinite(x)) continue;
    ++read;
    char text[64];
    std::snprintf(text, sizeof text, "[%.17g]", x);
    const auto value = parse(text);
    ASSERT_TRUE(value.ok()) << text;
    const boost::json::value& number = value->get_array().front();
    EXPECT_EQ(number.to_number<double>(), x) << text;
  }
}

TEST(Json, NumbersAtTheEndsOfTheRange) {
  EXPECT_EQ(parse("1.7976931348623157e308")->get_double(), std::numeric_limits<double>::max());
  EXPECT_EQ(parse("4.9406564584124654e-324")->get_double(),
            std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(parse("1e-400")->get_double(), 0.0);
  EXPECT_EQ(parse("18446744073709551615")->get_uint64(), std::uint64_t(-1));
  EXPECT_EQ(parse("18446744073709551616")->get_double(), 18446744073709551616.0);
  EXPECT_EQ(parse("[9007199254740993.0]")->get_array()[0].get_double(), 9007199254740992.0);
  EXPECT_FALSE(parse("-1e309").ok());
  EXPECT_EQ(parse("123456789012345678901234567890" + std::string(400, '0')).error().message,
            "JSON number is out of range");
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
