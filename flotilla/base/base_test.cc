#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <thread>

#include "flotilla/base/bounded_queue.h"
#include "flotilla/base/clock.h"
#include "flotilla/base/file.h"
#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/base/text.h"

namespace flotilla {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error{ErrorCode::kInvalidArgument, "odd"};
  return n / 2;
}
Result<int> quarter(int n) {
  FLOTILLA_TRY(int once, half(n));
  FLOTILLA_TRY(int twice, half(once));
  return twice;
}

TEST(ReadFile, FailsWithTheReasonAndTheName) {
  EXPECT_EQ(read_file("/nonexistent/x", 10).error().code, ErrorCode::kNotFound);
  const auto folder = read_file("/tmp", 10);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(folder.error().message.find("/tmp"), std::string::npos);
}

TEST(ReadFile, ReadsWholeFilesUpToTheLimit) {
  const std::string path = ::testing::TempDir() + "base_test_file";
  const std::string content(3'000'000, 'x');
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fwrite(content.data(), 1, content.size(), file);
  std::fclose(file);
  EXPECT_EQ(*read_file(path, content.size()), content);
  EXPECT_EQ(read_file(path, content.size() - 1).error().code, ErrorCode::kTooLarge);
  std::remove(path.c_str());
}

TEST(Result, TryPassesValuesAndErrorsOn) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).error().message, "odd");
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(4);
  std::unique_ptr<int> p = std::move(r).value();
  EXPECT_EQ(*p, 4);
}

TEST(ResultDeathTest, ValueOfAnErrorAborts) {
  EXPECT_DEATH({ (void)half(1).value(); }, "odd");
}

TEST(ErrorCode, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(error_code_from_string(to_string(code)), code);
  }
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  EXPECT_FALSE(queue.try_push(3));
  queue.close();
  EXPECT_FALSE(queue.try_push(4));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueue, CloseWakesAWaitingThread) {
  BoundedQueue<int> queue(1);
  std::thread waiter([&] { EXPECT_EQ(queue.pop(), std::nullopt); });
  queue.close();
  waiter.join();
}

TEST(FakeClock, MovesOnlyWhenAdvanced) {
  FakeClock clock;
  const auto start = clock.now();
  clock.advance(std::chrono::seconds(3));
  EXPECT_EQ(clock.now() - start, std::chrono::seconds(3));
  EXPECT_EQ(clock.unix_seconds(), 1'700'000'003);
}

TEST(Text, HexAndBase64RoundTrip) {
  std::vector<std::uint8_t> bytes;
  for (int n = 0; n < 40; ++n) {
    EXPECT_EQ(from_hex(to_hex(bytes)), bytes);
    EXPECT_EQ(from_base64url(to_base64url(bytes)), bytes);
    bytes.push_back(static_cast<std::uint8_t>(n * 37 + 200));
  }
  EXPECT_EQ(from_hex("abc"), std::nullopt);
  EXPECT_EQ(from_hex("zz"), std::nullopt);
  EXPECT_EQ(from_base64url("A"), std::nullopt);
  EXPECT_EQ(from_base64url("AB"), std::nullopt);  // bits set past the last byte
  EXPECT_EQ(from_base64url("A+"), std::nullopt);
}

TEST(Text, NearestNameSuggestsOnlyCloseOnes) {
  const std::vector<std::string> names{"listen", "database", "log_level"};
  EXPECT_EQ(nearest_name("listne", names), "listen");
  EXPECT_EQ(nearest_name("loglevel", names), "log_level");
  EXPECT_EQ(nearest_name("zzzzzz", names), std::nullopt);
}

TEST(Text, Utf8ValidityFollowsTheStandard) {
  EXPECT_TRUE(is_valid_utf8("aé😀"));
  EXPECT_FALSE(is_valid_utf8("\xC0\x80"));          // overlong
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));      // surrogate
  EXPECT_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));  // past U+10FFFF
  EXPECT_FALSE(is_valid_utf8("\xE2\x82"));
  EXPECT_EQ(incomplete_utf8_suffix("a\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_suffix("aé"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("a\xFF"), 0u);
}

TEST(Text, ConstantTimeComparisonIsExact) {
  EXPECT_TRUE(equal_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_constant_time("abc", "ab"));
}

}  // namespace
}  // namespace flotilla
