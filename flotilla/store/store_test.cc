#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <thread>

#include "flotilla/store/backends.inc"
#include "flotilla/store/claim.h"
#include "flotilla/store/database.h"
#include "flotilla/store/migrations.h"
#include "flotilla/store/testing.h"
#include "flotilla/store/worker.h"

namespace flotilla::store {
namespace {

using ::testing::HasSubstr;

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

// What holds for a file and for a server.
class AnyDatabase : public ::testing::TestWithParam<std::string> {
 protected:
  Database open(const DatabaseOptions& options = {}) {
    auto database = Database::open(place.path(), options);
    EXPECT_TRUE(database.ok()) << to_string(database.error());
    return std::move(*database);
  }
  Database open_with_schema() {
    Database database = open();
    EXPECT_TRUE(migrate(database, kSchema).ok());
    return database;
  }
  TestDatabase place{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(On, AnyDatabase, ::testing::ValuesIn(test_backends()), backend_name);

TEST_P(AnyDatabase, ValuesComeBackAsTheyWentIn) {
  Database database = open_with_schema();
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

TEST_P(AnyDatabase, FaultsHaveTheirCodes) {
  Database database = open_with_schema();
  ASSERT_TRUE(insert(database, 1, "a").ok());
  EXPECT_EQ(insert(database, 2, "a").error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(database.execute("INSERT INTO parts (thing) VALUES (99)").error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(database.query("SELEC 1").error().code, ErrorCode::kInternal);
  EXPECT_EQ(Database::open("/nonexistent/x.db").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(Database::open("mysql://h/d").error().code, ErrorCode::kUnsupported);
  const auto nobody = Database::open("postgresql://u:secret@/d?host=/nonexistent");
  EXPECT_EQ(nobody.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(nobody.error().message.find("secret"), std::string::npos) << nobody.error().message;
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

TEST_P(AnyDatabase, AFailedTransactionLeavesNothing) {
  Database database = open_with_schema();
  const Status status = database.transaction([&]() -> Status {
    FLOTILLA_TRY_STATUS(insert(database, 1, "a"));
    return Error{ErrorCode::kCancelled, "no"};
  });
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM things")->at(0).integer(0), 0);
  EXPECT_TRUE(database.transaction([&] { return insert(database, 1, "a"); }).ok());
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM things")->at(0).integer(0), 1);
}

TEST_P(AnyDatabase, IsSharedBetweenSessionsAndAFileIsPrivate) {
  Database first = open_with_schema();
  if (place.is_file()) {
    struct stat info {};
    ASSERT_EQ(::stat(place.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  ASSERT_TRUE(insert(first, 1, "a").ok());
  EXPECT_EQ(open().query("SELECT name FROM things")->at(0).text(0), "a");
  EXPECT_EQ(first.is_shared(), !place.is_file());
}

TEST_P(AnyDatabase, IsClaimedByOneAtATimeAndTheOthersAreToldByWhom) {
  using namespace std::chrono_literals;
  const Database database = open();
  {
    auto first = Claim::take(place.path(), "one host-a 17", 0ms);
    ASSERT_TRUE(first.ok()) << to_string(first.error());
    EXPECT_TRUE(first->keep().ok());
    const auto second = Claim::take(place.path(), "two host-b 18", 150ms);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(second.error().message, HasSubstr("in use by another coordinator: one host-a 17"));
    // A process that dies gives it up.
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/true", "true", nullptr);
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_FALSE(Claim::take(place.path(), "three", 0ms).ok()) << "a child had it";
  }
  EXPECT_TRUE(Claim::take(place.path(), "four", 1s).ok());
}

TEST(Claim, AFileThatCannotBeLockedIsNamed) {
  const auto claim = Claim::take("/nonexistent/x.db", "me", std::chrono::milliseconds(0));
  ASSERT_FALSE(claim.ok());
  EXPECT_THAT(claim.error().message, HasSubstr("/nonexistent/x.db"));
}

// Its session is cut: whoever is quicker has it from then on.
TEST(Claim, ALostSessionLosesItAndTakesItAgain) {
  const char* url = std::getenv("FLOTILLA_TEST_POSTGRES");
  if (url == nullptr || *url == 0) GTEST_SKIP() << "no PostgreSQL";
  using namespace std::chrono_literals;
  auto admin = Database::open(url);
  auto first = Claim::take(url, "one host-a 17", 0ms);
  ASSERT_TRUE(admin.ok() && first.ok());
  const auto cut = [&] {
    EXPECT_TRUE(admin
                    ->query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                            "WHERE application_name = 'one host-a 17'")
                    .ok());
  };
  cut();
  (void)first->keep();  // finds out
  EXPECT_TRUE(first->keep().ok());
  EXPECT_FALSE(Claim::take(url, "two", 0ms).ok());
  cut();
  auto second = Claim::take(url, "two host-b 18", 2s);
  ASSERT_TRUE(second.ok()) << to_string(second.error());
  (void)first->keep();
  const Status lost = first->keep();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(lost.error().message, HasSubstr("two host-b 18"));
}

// A server that is stopped, though its machine is well.
TEST(Postgres, AServerThatDoesNotAnswerIsGivenUp) {
  const char* url = std::getenv("FLOTILLA_TEST_POSTGRES");
  if (url == nullptr || *url == 0) GTEST_SKIP() << "no PostgreSQL";
  auto database = Database::open(url, {.answer_timeout_ms = 300});
  ASSERT_TRUE(database.ok());
  const auto before = std::chrono::steady_clock::now();
  const auto slow = database->query("SELECT pg_sleep(2)");
  ASSERT_FALSE(slow.ok());
  EXPECT_EQ(slow.error().code, ErrorCode::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(1'500));
  EXPECT_EQ(database->query("SELECT 1 + 1")->at(0).integer(0), 2) << "a new connection";
  // In a transaction nothing of it stays.
  const Status cut = database->transaction([&]() -> Status {
    auto slept = database->query("SELECT pg_sleep(2)");
    return slept.ok() ? ok_status() : Status(slept.error());
  });
  EXPECT_EQ(cut.error().code, ErrorCode::kUnavailable);
  // The server gives up its part when it wakes up.
  auto patient = Database::open(url);
  EXPECT_TRUE(patient.ok() && patient->transaction([] { return ok_status(); }).ok());
}

// Locks of files belong to processes: what one session closes must not free those of another.
TEST_P(AnyDatabase, SessionsOfOneProcessSeeWhatAnotherProcessWrites) {
  Database first = open_with_schema();
  const Database second = open();
  for (std::int64_t i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool done = false;
      {
        auto mine = Database::open(place.path());
        done = mine.ok() && insert(*mine, i, std::to_string(i)).ok();
      }
      ::_exit(done ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(first.query("SELECT COUNT(*) FROM things")->at(0).integer(0), i + 1);
  }
}

// The same statement with other values, and with NULL in the place of one.
TEST_P(AnyDatabase, AStatementIsUsedAgain) {
  Database database = open_with_schema();
  for (std::int64_t i = 0; i < 100; ++i) {
    const Value weight = i % 3 == 0 ? Value() : Value(static_cast<double>(i));
    ASSERT_TRUE(database
                    .execute("INSERT INTO things (id, name, weight) VALUES (:p1, :p2, :p3)",
                             {i, "n" + std::to_string(i), weight})
                    .ok());
    if (i % 7 == 0) {
      EXPECT_EQ(insert(database, i, "again").error().code, ErrorCode::kAlreadyExists);
    }
  }
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM things WHERE weight IS NULL")->at(0).integer(0),
            34);
  EXPECT_EQ(*database.execute("UPDATE things SET name = :p1 WHERE id >= :p2",
                              {std::string("x"), std::int64_t{99}}),
            1);
  EXPECT_EQ(database.query("SELECT name FROM things WHERE id = 99")->at(0).text(0), "x");
  EXPECT_EQ(database.query("SELECT name FROM things WHERE id = 98")->at(0).text(0), "n98");
}

// Two that read and then write would otherwise both see what was before.
TEST_P(AnyDatabase, WhatATransactionHasReadStaysTrue) {
  Database setup = open_with_schema();
  ASSERT_TRUE(insert(setup, 0, "counter").ok());
  const auto count = [&] {
    Database database = open();
    for (int i = 0; i < 25; ++i) {
      const Status status = database.transaction([&]() -> Status {
        FLOTILLA_TRY(const auto rows, database.query("SELECT weight FROM things WHERE id = 0"));
        const auto before = static_cast<double>(rows.at(0).integer(0));
        auto done = database.execute("UPDATE things SET weight = :p1 WHERE id = 0", {before + 1});
        return done.ok() ? ok_status() : Status(done.error());
      });
      if (!status.ok()) return to_string(status.error());
    }
    return std::string();
  };
  auto other = std::async(std::launch::async, count);
  EXPECT_EQ(count(), "");
  EXPECT_EQ(other.get(), "");
  EXPECT_EQ(setup.query("SELECT weight FROM things WHERE id = 0")->at(0).integer(0), 50);
}

TEST_P(AnyDatabase, ASnapshotSeesOneMomentAndHoldsUpNobody) {
  Database reader = open_with_schema();
  Database writer = open({.busy_timeout_ms = 50});
  const Status seen = reader.snapshot([&]() -> Status {
    FLOTILLA_TRY(const auto before, reader.query("SELECT COUNT(*) FROM things"));
    FLOTILLA_TRY_STATUS(writer.transaction([&] { return insert(writer, 1, "a"); }));
    FLOTILLA_TRY(const auto after, reader.query("SELECT COUNT(*) FROM things"));
    EXPECT_EQ(before[0].integer(0), after[0].integer(0));
    return ok_status();
  });
  EXPECT_TRUE(seen.ok()) << to_string(seen.error());
  EXPECT_EQ(reader.query("SELECT COUNT(*) FROM things")->at(0).integer(0), 1);
}

TEST_P(AnyDatabase, ALostConnectionIsMadeAgain) {
  if (place.is_file()) GTEST_SKIP() << "a file has no connection";
  Database database = open_with_schema();
  ASSERT_TRUE(insert(database, 1, "a").ok());
  Database killer = open();
  ASSERT_TRUE(killer
                  .query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                         "pg_backend_pid() AND datname = current_database()")
                  .ok());
  // Whatever begins anew after the loss works.
  EXPECT_TRUE(database.transaction([&] { return insert(database, 2, "b"); }).ok());
  EXPECT_EQ(database.query("SELECT COUNT(*) FROM things")->at(0).integer(0), 2);
}

TEST(DisplayName, HidesThePassword) {
  EXPECT_EQ(display_name("/var/lib/x.sqlite"), "/var/lib/x.sqlite");
  EXPECT_EQ(display_name("postgresql://u:p@w@h:5432/d?password=q"), "postgresql://u@h:5432/d");
  EXPECT_EQ(display_name("postgresql://h/d"), "postgresql://h/d");
  EXPECT_EQ(display_name("postgresql://u:p?w@h/d?password=q"), "postgresql://u@h/d");
  EXPECT_EQ(display_name("postgresql://u:p/w@h/d"), "postgresql://u@h/d");
  EXPECT_EQ(display_name("postgresql://u:p?w/x@y@h/d"), "postgresql://u");
  EXPECT_EQ(display_name("postgresql://h/d?password=p@w"), "postgresql://h/d");
  EXPECT_EQ(display_name("postgresql://h:5432/d?password=p@w"), "postgresql://h:5432/d");
  EXPECT_EQ(display_name("postgresql://u@h/d?x=y"), "postgresql://u@h/d");
  EXPECT_EQ(display_name("postgres:///d?host=/run&password=q"), "postgres:///d");
}

TEST_P(AnyDatabase, WritersOfTwoThreadsWaitForEachOther) {
  Database first = open_with_schema();
  const auto write = [&](std::int64_t from) {
    Database database = open();
    for (std::int64_t i = 0; i < 20; ++i) {
      const Status status = database.transaction(
          [&] { return insert(database, from + i, std::to_string(from + i)); });
      if (!status.ok()) return false;
    }
    return true;
  };
  auto other = std::async(std::launch::async, write, 1000);
  EXPECT_TRUE(write(0));
  EXPECT_TRUE(other.get());
  EXPECT_EQ(first.query("SELECT COUNT(*) FROM things")->at(0).integer(0), 40);
}

TEST_P(AnyDatabase, ALockHeldTooLongIsUnavailable) {
  Database first = open_with_schema();
  Database second = open({.busy_timeout_ms = 10});
  const Status held =
      first.transaction([&]() -> Status { return second.transaction([] { return ok_status(); }); });
  EXPECT_EQ(held.error().code, ErrorCode::kUnavailable);
}

TEST(Database, AFileThatIsNoDatabaseIsNamed) {
  const TestDatabase place("sqlite");
  const std::string& path = place.path();
  std::FILE* file = std::fopen(path.c_str(), "wb");
  for (int i = 0; i < 300; ++i) std::fputs("this is not a database", file);
  std::fclose(file);
  auto database = Database::open(path);
  ASSERT_FALSE(database.ok());
  EXPECT_EQ(database.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(database.error().message, HasSubstr(path));
}

TEST_P(AnyDatabase, MigrationsRunOnceAndInOrder) {
  Database database = open();
  std::vector<Migration> schema = kSchema;
  ASSERT_TRUE(migrate(database, schema).ok());
  ASSERT_TRUE(migrate(database, schema).ok());
  EXPECT_EQ(*schema_version(database), 1);
  schema.push_back({2, "colour", {"ALTER TABLE things ADD COLUMN colour TEXT"}});
  ASSERT_TRUE(migrate(database, schema).ok());
  EXPECT_EQ(*schema_version(database), 2);
  const Status older = migrate(database, kSchema);
  EXPECT_EQ(older.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(older.error().message, HasSubstr("schema version 2"));
}

TEST_P(AnyDatabase, AFailingMigrationChangesNothing) {
  Database database = open_with_schema();
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

TEST(Postgres, AServerThatDoesNotAnswerIsGivenUpUnlessTheUrlSaysOtherwise) {
  EXPECT_EQ(with_timeouts("postgresql://u:p@h/n"),
            "postgresql://u:p@h/n?connect_timeout=5&tcp_user_timeout=10000");
  EXPECT_EQ(with_timeouts("postgresql://h/n?sslmode=require"),
            "postgresql://h/n?sslmode=require&connect_timeout=5&tcp_user_timeout=10000");
  EXPECT_EQ(with_timeouts("postgresql://h/n?tcp_user_timeout=0&connect_timeout=60"),
            "postgresql://h/n?tcp_user_timeout=0&connect_timeout=60");
}

}  // namespace
}  // namespace flotilla::store
