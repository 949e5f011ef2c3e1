#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <future>
#include <thread>

#include "flotilla/store/database.h"
#include "flotilla/store/migrations.h"
#include "flotilla/store/worker.h"

namespace flotilla::store {
namespace {

using ::testing::HasSubstr;

class TemporaryPath {
 public:
  TemporaryPath() {
    static std::atomic<int> n{0};
    path_ = ::testing::TempDir() + "/flotilla store " + std::to_string(::getpid()) + "-" +
            std::to_string(n++);
  }
  ~TemporaryPath() {
    for (const char* suffix : {"", "-wal", "-shm"}) std::remove((path_ + suffix).c_str());
  }
  const std::string& str() const { return path_; }

 private:
  std::string path_;
};

const std::vector<Migration> kSchema{
    {1,
     "things",
     {"CREATE TABLE things (id BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, weight DOUBLE "
      "PRECISION)",
      "CREATE TABLE parts (thing BIGINT NOT NULL REFERENCES things (id), name TEXT)"}}};

Database open_memory() {
  auto database = Database::open(":memory:");
  EXPECT_TRUE(database.ok());
  EXPECT_TRUE(migrate(*database, kSchema).ok());
  return std::move(*database);
}

Status insert(Database& database, std::int64_t id, const std::string& name) {
  auto done = database.execute("INSERT INTO things (id, name) VALUES (:p1, :p2)", {id, name});
  if (!done.ok()) return done.error();
  return ok_status();
}

TEST(Database, ValuesComeBackAsTheyWentIn) {
  Database database = open_memory();
  const std::int64_t big = std::int64_t{1} << 62;
  const std::string text = "a'b\"; DROP TABLE things; -- ä\n";
  ASSERT_TRUE(
      database
          .execute("INSERT INTO things (id, name, weight) VALUES (:p1, :p2, :p3)", {big, text, 0.5})
          .ok());
  ASSERT_TRUE(database
                  .execute("INSERT INTO things (id, name, weight) VALUES (:p1, :p2, :p3)",
                           {std::int64_t{-1}, std::string(), Value{}})
                  .ok());
  auto rows = database.query("SELECT id, name, weight FROM things ORDER BY id DESC");
  ASSERT_TRUE(rows.ok()) << to_string(rows.error());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].integer(0), big);
  EXPECT_EQ((*rows)[0].text(1), text);
  EXPECT_FALSE((*rows)[0].is_null(2));
  EXPECT_EQ((*rows)[1].integer(0), -1);
  EXPECT_TRUE((*rows)[1].is_null(2));
  EXPECT_TRUE((*rows)[1].is_null(9));
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM things")->at(0).integer(0), 2);
  EXPECT_EQ(*database.execute("DELETE FROM things WHERE id < :p1", {std::int64_t{0}}), 1);
}

TEST(Database, FaultsHaveTheirCodes) {
  Database database = open_memory();
  ASSERT_TRUE(insert(database, 1, "a").ok());
  EXPECT_EQ(insert(database, 2, "a").error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(database.execute("INSERT INTO parts (thing) VALUES (99)").error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(database.query("SELEC 1").error().code, ErrorCode::kInternal);
  EXPECT_EQ(Database::open("/nonexistent/x.db").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(Database::open("postgresql://h/d").error().code, ErrorCode::kUnsupported);
}

TEST(Database, AMissingFileIsMadeOnlyWhenAsked) {
  const std::string path = ::testing::TempDir() + "store_test_missing.db";
  std::remove(path.c_str());
  EXPECT_EQ(Database::open(path, {.create = false}).error().code, ErrorCode::kNotFound);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_TRUE(Database::open(path).ok());
  EXPECT_TRUE(Database::open(path, {.create = false}).ok());
  std::remove(path.c_str());
}

TEST(Database, AFailedTransactionLeavesNothing) {
  Database database = open_memory();
  const Status status = database.transaction([&]() -> Status {
    FLOTILLA_TRY_STATUS(insert(database, 1, "a"));
    return Error{ErrorCode::kCancelled, "no"};
  });
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM things")->at(0).integer(0), 0);
  EXPECT_TRUE(database.transaction([&] { return insert(database, 1, "a"); }).ok());
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM things")->at(0).integer(0), 1);
}

TEST(Database, TheFileIsPrivateAndSharedBetweenSessions) {
  const TemporaryPath path;
  auto first = Database::open(path.str());
  ASSERT_TRUE(first.ok()) << to_string(first.error());
  struct stat info {};
  ASSERT_EQ(::stat(path.str().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_TRUE(migrate(*first, kSchema).ok());
  ASSERT_TRUE(insert(*first, 1, "a").ok());
  auto second = Database::open(path.str());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->query("SELECT name FROM things")->at(0).text(0), "a");
}

TEST(Database, WritersOfTwoThreadsWaitForEachOther) {
  const TemporaryPath path;
  auto first = Database::open(path.str());
  ASSERT_TRUE(migrate(*first, kSchema).ok());
  const auto write = [&](std::int64_t from) {
    auto database = Database::open(path.str());
    for (std::int64_t i = 0; i < 20; ++i) {
      const Status status = database->transaction(
          [&] { return insert(*database, from + i, std::to_string(from + i)); });
      if (!status.ok()) return false;
    }
    return true;
  };
  auto other = std::async(std::launch::async, write, 1000);
  EXPECT_TRUE(write(0));
  EXPECT_TRUE(other.get());
  EXPECT_EQ(first->query("SELECT COUNT(*) FROM things")->at(0).integer(0), 40);
}

TEST(Database, ALockHeldTooLongIsUnavailable) {
  const TemporaryPath path;
  auto first = Database::open(path.str());
  auto second = Database::open(path.str(), {.busy_timeout_ms = 10});
  ASSERT_TRUE(migrate(*first, kSchema).ok());
  const Status held = first->transaction(
      [&]() -> Status { return second->transaction([] { return ok_status(); }); });
  EXPECT_EQ(held.error().code, ErrorCode::kUnavailable);
}

TEST(Database, AFileThatIsNoDatabaseIsNamed) {
  const TemporaryPath path;
  std::FILE* file = std::fopen(path.str().c_str(), "wb");
  for (int i = 0; i < 300; ++i) std::fputs("this is not a database", file);
  std::fclose(file);
  auto database = Database::open(path.str());
  ASSERT_FALSE(database.ok());
  EXPECT_EQ(database.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(database.error().message, HasSubstr(path.str()));
}

TEST(Migrations, RunOnceAndInOrder) {
  const TemporaryPath path;
  auto database = Database::open(path.str());
  std::vector<Migration> schema = kSchema;
  ASSERT_TRUE(migrate(*database, schema).ok());
  ASSERT_TRUE(migrate(*database, schema).ok());
  EXPECT_EQ(*schema_version(*database), 1);
  schema.push_back({2, "colour", {"ALTER TABLE things ADD COLUMN colour TEXT"}});
  ASSERT_TRUE(migrate(*database, schema).ok());
  EXPECT_EQ(*schema_version(*database), 2);
  const Status older = migrate(*database, kSchema);
  EXPECT_EQ(older.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(older.error().message, HasSubstr("schema version 2"));
}

TEST(Migrations, AFailingStepChangesNothing) {
  Database database = open_memory();
  std::vector<Migration> schema = kSchema;
  schema.push_back({2, "broken", {"ALTER TABLE things ADD COLUMN a TEXT", "NONSENSE"}});
  const Status status = migrate(database, schema);
  EXPECT_THAT(status.error().message, HasSubstr("migration 2 (broken)"));
  EXPECT_EQ(*schema_version(database), 1);
  EXPECT_FALSE(database.query("SELECT a FROM things").ok());
}

TEST(Worker, RunsTasksInOrderAndRefusesWhenFull) {
  std::vector<int> seen;
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  {
    Worker worker(open_memory(), 2);
    std::promise<void> started;
    ASSERT_TRUE(worker.try_post([&](Database&) {
      started.set_value();
      opened.wait();
      seen.push_back(0);
    }));
    started.get_future().wait();
    EXPECT_TRUE(
        worker.try_post([&](Database& db) { seen.push_back(insert(db, 1, "a").ok() ? 1 : -1); }));
    EXPECT_TRUE(worker.try_post([&](Database&) { seen.push_back(2); }));
    EXPECT_FALSE(worker.try_post([&](Database&) { seen.push_back(3); }));
    gate.set_value();
  }
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace flotilla::store
