// A session with the database, over SOCI. SQL text is written once for SQLite and PostgreSQL:
// standard types (BIGINT, TEXT), positional parameters written :p1, :p2, ..., no vendor functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::store {

// What goes in and comes out: NULL, a number, a text.
using Value = std::variant<std::monostate, std::int64_t, double, std::string>;

// One row of an answer. Reads by position, from 0; a column that cannot be read as asked gives 0 or
// "" (NULL does too).
class Row {
 public:
  explicit Row(std::vector<Value> values) : values_(std::move(values)) {}
  bool is_null(std::size_t column) const;
  std::int64_t integer(std::size_t column) const;
  std::string text(std::size_t column) const;
  std::size_t num_columns() const { return values_.size(); }

 private:
  std::vector<Value> values_;
};

struct DatabaseOptions {
  std::int64_t busy_timeout_ms = 5'000;  // how long to wait for another process's lock
  // A server that does not answer a statement for so long is given up: the connection is cut.
  // 0: never. Files do not need it.
  std::int64_t answer_timeout_ms = 0;
  bool create = true;  // a missing file; else it is kNotFound
};

// A path as it may be logged: without the password of a URL.
std::string display_name(const std::string& path);

// Used by one thread at a time. A lost connection to a server is made again by the next use outside
// a transaction. Errors: kUnavailable (cannot open, connection lost, locked for too long),
// kAlreadyExists (a unique key), kInvalidArgument (another constraint), kInternal (bad SQL).
class Database {
 public:
  // A file path or ":memory:" for SQLite, which creates the file with mode 0600 where it is
  // missing; "postgresql://USER:PASSWORD@HOST/NAME" (libpq's form) for a PostgreSQL server.
  static Result<Database> open(const std::string& path, const DatabaseOptions& options = {});
  ~Database();
  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;

  Result<std::vector<Row>> query(std::string_view sql, std::vector<Value> parameters = {});
  // For statements without an answer: how many rows they changed.
  Result<std::int64_t> execute(std::string_view sql, std::vector<Value> parameters = {});

  // Runs `body` with the write lock held: what it reads stays true until it commits, which it does
  // when `body` returns ok; else everything is undone. Not nested. A statement that fails inside
  // means that the whole transaction fails (PostgreSQL takes no more).
  Status transaction(const std::function<Status()>& body);
  // As transaction(), for reading: what `body` reads belongs to one moment, and writers are not
  // held up.
  Status snapshot(const std::function<Status()>& body);

  // On a server of its own, not in a file.
  bool is_shared() const;

 private:
  struct Impl;
  explicit Database(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flotilla::store
