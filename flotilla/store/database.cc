#include "flotilla/store/database.h"

#include <fcntl.h>
#include <soci/soci.h>
#include <soci/sqlite3/soci-sqlite3.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <list>

#include "flotilla/base/check.h"

namespace flotilla::store {
namespace {

Error to_error(const std::exception& e, std::string_view what) {
  Error error{ErrorCode::kInternal, "database: " + std::string(what) + ": " + e.what()};
  if (const auto* sqlite = dynamic_cast<const soci::sqlite3_soci_error*>(&e)) {
    switch (sqlite->result() & 0xFF) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
      case SQLITE_CANTOPEN:
      case SQLITE_FULL:
      case SQLITE_IOERR:
      case SQLITE_READONLY:
        error.code = ErrorCode::kUnavailable;
        break;
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        error.code = ErrorCode::kDataLoss;
        break;
      case SQLITE_CONSTRAINT:
        error.code = std::strstr(e.what(), "UNIQUE") != nullptr ? ErrorCode::kAlreadyExists
                                                                : ErrorCode::kInvalidArgument;
        break;
      default:
        break;
    }
  }
  return error;
}

// Holds the parameters of one statement at stable addresses, as SOCI binds by reference.
class Parameters {
 public:
  Parameters(soci::statement& statement, const std::vector<Value>& values) {
    int n = 0;
    for (const Value& value : values) {
      const std::string name = "p" + std::to_string(++n);
      indicators_.push_back(soci::i_ok);
      if (const auto* number = std::get_if<std::int64_t>(&value)) {
        statement.exchange(soci::use(numbers_.emplace_back(*number), indicators_.back(), name));
      } else if (const auto* real = std::get_if<double>(&value)) {
        statement.exchange(soci::use(reals_.emplace_back(*real), indicators_.back(), name));
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        statement.exchange(soci::use(texts_.emplace_back(*text), indicators_.back(), name));
      } else {
        indicators_.back() = soci::i_null;
        statement.exchange(soci::use(texts_.emplace_back(), indicators_.back(), name));
      }
    }
  }

 private:
  std::list<soci::indicator> indicators_;
  std::list<long long> numbers_;
  std::list<double> reals_;
  std::list<std::string> texts_;
};

Value read_column(const soci::row& row, std::size_t i) {
  if (row.get_indicator(i) == soci::i_null) return {};
  switch (row.get_properties(i).get_data_type()) {
    case soci::dt_double:
      return row.get<double>(i);
    case soci::dt_integer:
      return static_cast<std::int64_t>(row.get<int>(i));
    case soci::dt_long_long:
      return static_cast<std::int64_t>(row.get<long long>(i));
    case soci::dt_unsigned_long_long:
      return static_cast<std::int64_t>(row.get<unsigned long long>(i));
    default:
      return row.get<std::string>(i);
  }
}

// SQLite would create the file with the process's umask.
Status open_private_file(const std::string& path, bool create) {
  const int fd = ::open(path.c_str(), O_RDWR | (create ? O_CREAT : 0) | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Error{errno == ENOENT && !create ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                 "cannot open database " + path + ": " + std::strerror(errno)};
  }
  ::close(fd);
  return ok_status();
}

}  // namespace

bool Row::is_null(std::size_t column) const {
  return column >= values_.size() || std::holds_alternative<std::monostate>(values_[column]);
}

std::int64_t Row::integer(std::size_t column) const {
  if (column >= values_.size()) return 0;
  const Value& value = values_[column];
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  if (const auto* real = std::get_if<double>(&value)) return static_cast<std::int64_t>(*real);
  std::int64_t out = 0;
  if (const auto* text = std::get_if<std::string>(&value)) {  // SQLite gives expressions no type
    std::from_chars(text->data(), text->data() + text->size(), out);
  }
  return out;
}

std::string Row::text(std::size_t column) const {
  if (column >= values_.size()) return {};
  const Value& value = values_[column];
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  return {};
}

struct Database::Impl {
  soci::session session;
  bool in_transaction = false;
};

Database::Database(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Database::~Database() = default;
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;

Result<Database> Database::open(const std::string& path, const DatabaseOptions& options) {
  if (path.find("://") != std::string::npos) {
    return Error{ErrorCode::kUnsupported, "database '" + path.substr(0, path.find("://")) +
                                              "': only SQLite files are supported by this version"};
  }
  if (path.empty() || path.find('"') != std::string::npos) {
    return Error{ErrorCode::kInvalidArgument, "'" + path + "' is not a path for a database file"};
  }
  if (path != ":memory:") FLOTILLA_TRY_STATUS(open_private_file(path, options.create));
  auto impl = std::make_unique<Impl>();
  try {
    impl->session.open(soci::sqlite3, "db=\"" + path + "\"");
    std::string journal;
    const std::string timeout = std::to_string(options.busy_timeout_ms);
    impl->session << "PRAGMA busy_timeout = " + timeout;
    // Readers and the one writer do not wait for each other, and a commit costs one sync at
    // checkpoints only.
    impl->session << "PRAGMA journal_mode = WAL", soci::into(journal);
    if (path != ":memory:" && journal != "wal") {
      return Error{
          ErrorCode::kUnavailable,
          "database " + path + " cannot use a write-ahead log; is it on a network file system?"};
    }
    impl->session << "PRAGMA synchronous = FULL";
    impl->session << "PRAGMA foreign_keys = ON";
  } catch (const std::exception& e) {
    return to_error(e, "open " + path);
  }
  return Database(std::move(impl));
}

Result<std::vector<Row>> Database::query(std::string_view sql, std::vector<Value> parameters) {
  try {
    soci::statement statement(impl_->session);
    soci::row row;
    statement.exchange(soci::into(row));
    const Parameters bound(statement, parameters);
    statement.alloc();
    statement.prepare(std::string(sql));
    statement.define_and_bind();
    std::vector<Row> rows;
    for (bool more = statement.execute(true); more; more = statement.fetch()) {
      std::vector<Value> values;
      values.reserve(row.size());
      for (std::size_t i = 0; i < row.size(); ++i) values.push_back(read_column(row, i));
      rows.emplace_back(std::move(values));
    }
    return rows;
  } catch (const std::exception& e) {
    return to_error(e, "query");
  }
}

Result<std::int64_t> Database::execute(std::string_view sql, std::vector<Value> parameters) {
  try {
    soci::statement statement(impl_->session);
    const Parameters bound(statement, parameters);
    statement.alloc();
    statement.prepare(std::string(sql));
    statement.define_and_bind();
    statement.execute(true);
    return static_cast<std::int64_t>(statement.get_affected_rows());
  } catch (const std::exception& e) {
    return to_error(e, "statement");
  }
}

Status Database::transaction(const std::function<Status()>& body) {
  FLOTILLA_CHECK(!impl_->in_transaction, "transactions do not nest");
  // IMMEDIATE: a reader that turned writer could otherwise fail with a busy error that no waiting
  // cures.
  if (auto begun = execute("BEGIN IMMEDIATE"); !begun.ok()) return std::move(begun).error();
  impl_->in_transaction = true;
  Status status = body();
  if (status.ok()) {
    if (auto committed = execute("COMMIT"); !committed.ok()) status = std::move(committed).error();
  }
  if (!status.ok())
    (void)execute("ROLLBACK");  // fails when the statement's own fault has undone everything
  impl_->in_transaction = false;
  return status;
}

}  // namespace flotilla::store
