#include "flotilla/serving/access.h"

#include <gtest/gtest.h>

#include "flotilla/log/log.h"
#include "flotilla/serving/ids.h"

namespace flotilla::serving {
namespace {

// The access log of a thousand test requests helps nobody.
class QuietLog : public testing::Environment {
  void SetUp() override { log::configure(log::Level::kError, log::Format::kText); }
};
const testing::Environment* const kQuietLog = testing::AddGlobalTestEnvironment(new QuietLog);

Credentials read(std::vector<std::pair<std::string, std::string>> entries) {
  net::Headers headers;
  headers.entries = std::move(entries);
  return read_credentials(headers);
}

TEST(Access, ReadsEverySpellingOfAKey) {
  EXPECT_EQ(read({{"Authorization", "Bearer K"}}).key, "K");
  EXPECT_EQ(read({{"authorization", "bearer K"}}).key, "K");
  EXPECT_EQ(read({{"Authorization", "BEARER K"}}).key, "K");
  EXPECT_EQ(read({{"Authorization", "Bearer  K"}}).key, "K");
  EXPECT_EQ(read({{"x-api-key", "K"}}).key, "K");
  EXPECT_EQ(read({{"X-API-Key", "K"}, {"Authorization", "Bearer K"}}).key, "K");
}

TEST(Access, RefusesWhatIsNoKey) {
  for (const char* value : {"", "Bearer", "Bearer ", "Bearer   ", "BearerK", "Basic dTpw",
                            "Bearer a b", "Bearer K\n", "Bearer K\x7f", "Bearer \xC3\xA9"}) {
    const Credentials credentials = read({{"Authorization", value}});
    EXPECT_TRUE(credentials.malformed) << value;
    EXPECT_FALSE(credentials.key.has_value()) << value;
  }
  EXPECT_TRUE(read({{"x-api-key", ""}}).malformed);
  EXPECT_TRUE(read({{"x-api-key", "a"}, {"Authorization", "Bearer b"}}).malformed);
  EXPECT_TRUE(read({{"x-api-key", "a"}, {"x-api-key", "b"}}).malformed);
  EXPECT_TRUE(read({{"x-api-key", std::string(513, 'a')}}).malformed);
}

TEST(Access, NoHeaderIsNoKey) {
  const Credentials credentials = read({{"Host", "x"}});
  EXPECT_FALSE(credentials.malformed);
  EXPECT_FALSE(credentials.key.has_value());
}

TEST(Ids, AreRandomAndValid) {
  const std::string a = random_id("req_"), b = random_id("req_");
  EXPECT_NE(a, b);
  EXPECT_EQ(a.size(), 36u);
  EXPECT_TRUE(is_request_id(a));
  for (const char* bad : {"", "a b", "a\r\nX: y", "ä", "a/b"})
    EXPECT_FALSE(is_request_id(bad)) << bad;
  EXPECT_FALSE(is_request_id(std::string(129, 'a')));
}

}  // namespace
}  // namespace flotilla::serving
