#include "flotilla/coordinator/admin/query.h"

#include <gtest/gtest.h>

namespace flotilla::coordinator {
namespace {

TEST(Query, ValuesAreDecoded) {
  EXPECT_EQ(query_value("model=org%2Ftiny&node=a+b", "model"), "org/tiny");
  EXPECT_EQ(query_value("model=org%2Ftiny&node=a+b", "node"), "a b");
  EXPECT_EQ(query_value("a&b=", "a"), "");
  EXPECT_EQ(query_value("a&b=", "b"), "");
  EXPECT_EQ(query_value("m%6Fdel=x", "model"), "x");
}

TEST(Query, WhatIsAbsentOrBrokenIsNothing) {
  EXPECT_EQ(query_value("", "a"), std::nullopt);
  EXPECT_EQ(query_value("ab=1", "a"), std::nullopt);
  EXPECT_EQ(query_value("a=%2", "a"), std::nullopt);
  EXPECT_EQ(query_value("a=%zz", "a"), std::nullopt);
}

}  // namespace
}  // namespace flotilla::coordinator
