#include "flotilla/coordinator/admin/admin_access.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace flotilla::coordinator {
namespace {

constexpr const char* kKey = "0123456789abcdef-admin";

net::Headers bearer(const std::string& key) {
  net::Headers headers;
  headers.add("Authorization", "Bearer " + key);
  return headers;
}

TEST(AdminAccess, WithoutAKeyNobodyIsAnAdministrator) {
  const AdminAccess off("");
  EXPECT_FALSE(off.enabled());
  EXPECT_EQ(off.check(bearer("")).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(off.check(bearer(kKey)).error().code, ErrorCode::kPermissionDenied);
}

TEST(AdminAccess, OnlyTheKeyItselfOpens) {
  const AdminAccess access(kKey);
  EXPECT_TRUE(access.check(bearer(kKey)).ok());
  net::Headers other;
  other.add("x-api-key", kKey);
  EXPECT_TRUE(access.check(other).ok());
  EXPECT_EQ(access.check({}).error().code, ErrorCode::kUnauthenticated);
  for (const std::string wrong :
       {"0123456789abcdef-admiN", "0123456789abcdef-admi", "0123456789abcdef-admin2", "x"}) {
    const Status status = access.check(bearer(wrong));
    ASSERT_FALSE(status.ok()) << wrong;
    EXPECT_EQ(status.error().code, ErrorCode::kUnauthenticated);
  }
}

TEST(AdminAccess, TheSettingIsAKeyOrAFile) {
  EXPECT_EQ(*read_admin_key(""), "");
  EXPECT_EQ(*read_admin_key(kKey), kKey);
  const std::string path = ::testing::TempDir() + "/flotilla-admin-key";
  std::ofstream(path) << kKey << "\nsecond line\n";
  EXPECT_EQ(*read_admin_key("@" + path), kKey);
  std::ofstream(path) << "\n";
  EXPECT_EQ(read_admin_key("@" + path).error().code, ErrorCode::kInvalidArgument);
  std::remove(path.c_str());
  EXPECT_FALSE(read_admin_key("@" + path).ok());
}

TEST(AdminAccess, AKeyThatCouldBeGuessedIsRefusedAndNotShown) {
  for (const std::string bad : {"short", "with a blank in it, long", "line\nbreak-0123456789"}) {
    const auto key = read_admin_key(bad);
    ASSERT_FALSE(key.ok()) << bad;
    EXPECT_EQ(key.error().message.find(bad), std::string::npos);
  }
}

}  // namespace
}  // namespace flotilla::coordinator
