// For tests that hold for every database: a fresh, empty one of each kind. PostgreSQL takes part
// when FLOTILLA_TEST_POSTGRES has the URL of a database that may be emptied
// (tests/postgres/with_server.sh sets it).
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "flotilla/store/database.h"

namespace flotilla::store {

inline std::vector<std::string> test_backends() {
  std::vector<std::string> out{"sqlite"};
  if (const char* url = std::getenv("FLOTILLA_TEST_POSTGRES"); url != nullptr && *url != '\0')
    out.emplace_back("postgres");
  return out;
}

// A path that several sessions may open, empty at first and gone at the end.
class TestDatabase {
 public:
  explicit TestDatabase(const std::string& backend) {
    if (backend == "postgres") {
      path_ = std::getenv("FLOTILLA_TEST_POSTGRES");
      auto database = Database::open(path_);
      EXPECT_TRUE(database.ok()) << to_string(database.error());
      EXPECT_TRUE(database->execute("DROP SCHEMA public CASCADE").ok());
      EXPECT_TRUE(database->execute("CREATE SCHEMA public").ok());
      return;
    }
    static std::atomic<int> n{0};
    path_ = ::testing::TempDir() + "/flotilla store " + std::to_string(::getpid()) + "-" +
            std::to_string(n++);
    is_file_ = true;
  }
  ~TestDatabase() {
    if (!is_file_) return;
    for (const char* suffix : {"", "-wal", "-shm", ".lock"}) std::remove((path_ + suffix).c_str());
  }
  TestDatabase(const TestDatabase&) = delete;
  TestDatabase& operator=(const TestDatabase&) = delete;
  const std::string& path() const { return path_; }
  bool is_file() const { return is_file_; }

 private:
  std::string path_;
  bool is_file_ = false;
};

inline std::string backend_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace flotilla::store
