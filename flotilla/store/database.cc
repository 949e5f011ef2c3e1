#include "flotilla/store/database.h"

#include <charconv>
#include <list>
#include <optional>
#include <unordered_map>

#include "flotilla/base/check.h"
#include "flotilla/store/answer_watch.h"
#include "flotilla/store/backends.inc"

namespace flotilla::store {
namespace {

constexpr std::size_t kMaxPrepared = 64;

// Holds the parameters of one statement at stable addresses, as SOCI binds by reference.
class Parameters {
 public:
  Parameters(soci::statement& statement, const std::vector<Value>& values) {
    int n = 0;
    for (const Value& value : values) {
      const std::string name = "p" + std::to_string(++n);
      Slot& slot = slots_.emplace_back();
      if (std::holds_alternative<std::int64_t>(value)) {
        statement.exchange(soci::use(slot.number, slot.indicator, name));
      } else if (std::holds_alternative<double>(value)) {
        statement.exchange(soci::use(slot.real, slot.indicator, name));
      } else {
        statement.exchange(soci::use(slot.text, slot.indicator, name));
      }
    }
    set(values);
  }

  // Other values of the same types.
  void set(const std::vector<Value>& values) {
    auto slot = slots_.begin();
    for (const Value& value : values) {
      slot->indicator = soci::i_ok;
      if (const auto* number = std::get_if<std::int64_t>(&value)) {
        slot->number = *number;
      } else if (const auto* real = std::get_if<double>(&value)) {
        slot->real = *real;
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        slot->text = *text;
      } else {
        slot->indicator = soci::i_null;
      }
      ++slot;
    }
  }

 private:
  struct Slot {
    soci::indicator indicator = soci::i_ok;
    long long number = 0;
    double real = 0;
    std::string text;
  };
  std::list<Slot> slots_;
};

// A statement that is run again and again: parsed once, by the server too.
struct Prepared {
  Prepared(soci::session& session, const std::string& sql, const std::vector<Value>& values)
      : statement(session), parameters(statement, values) {
    statement.alloc();
    statement.prepare(sql);
    statement.define_and_bind();
  }
  soci::statement statement;
  Parameters parameters;
};

// Statements that change rows repeat; those that change the schema do not.
bool is_worth_preparing(std::string_view sql) {
  return sql.starts_with("INSERT") || sql.starts_with("UPDATE") || sql.starts_with("DELETE");
}

std::string signature(std::string_view sql, const std::vector<Value>& values) {
  std::string key(sql);
  for (const Value& value : values) {
    key += std::holds_alternative<std::int64_t>(value) ? '#'
           : std::holds_alternative<double>(value)     ? '.'
                                                       : '$';
  }
  return key;
}

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
  Impl(Backend which, DatabaseOptions given) : backend(which), options(given) {
    if (backend == Backend::kPostgres && options.answer_timeout_ms > 0)
      watch.emplace(std::chrono::milliseconds(options.answer_timeout_ms));
  }

  // A lost connection is made anew where nothing depends on the old one.
  void revive() {
    if (!lost || in_transaction) return;
    prepared.clear();
    session.reconnect();
    set_up_postgres(session, options);
    lost = false;
  }
  Error failed(const std::exception& e, std::string_view what) {
    Error error = to_error(e, what);
    // The server undoes what a broken session had begun.
    if (backend == Backend::kPostgres && error.code == ErrorCode::kUnavailable) lost = true;
    return error;
  }
  Prepared& prepare(std::string_view sql, const std::vector<Value>& values) {
    std::string key = signature(sql, values);
    if (const auto at = prepared.find(key); at != prepared.end()) {
      at->second.parameters.set(values);
      return at->second;
    }
    if (prepared.size() >= kMaxPrepared) prepared.clear();
    return prepared.try_emplace(std::move(key), session, std::string(sql), values).first->second;
  }

  Status run(Database& database, std::string_view begin, std::string_view lock,
             const std::function<Status()>& body);

  // While it lives, the server has a limited time to answer.
  class Watched {
   public:
    explicit Watched(Impl& impl) : watch_(impl.watch ? &*impl.watch : nullptr) {
      if (watch_ != nullptr) watch_->begin(socket_of(impl.session));
    }
    ~Watched() {
      if (watch_ != nullptr) watch_->end();
    }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

   private:
    AnswerWatch* const watch_;
  };

  const Backend backend;
  const DatabaseOptions options;
  std::optional<AnswerWatch> watch;
  soci::session session;
  std::unordered_map<std::string, Prepared> prepared;  // before the session goes, they go
  bool in_transaction = false;
  bool lost = false;
};

Database::Database(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Database::~Database() = default;
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;

bool Database::is_shared() const { return impl_->backend == Backend::kPostgres; }

Result<Database> Database::open(const std::string& path, const DatabaseOptions& options) {
  FLOTILLA_TRY(const Backend backend, backend_of(path));
  auto impl = std::make_unique<Impl>(backend, options);
  FLOTILLA_TRY_STATUS(open_session(impl->session, backend, path, options));
  return Database(std::move(impl));
}

Result<std::vector<Row>> Database::query(std::string_view sql, std::vector<Value> parameters) {
  try {
    impl_->revive();
    const Impl::Watched watched(*impl_);
    soci::statement statement(impl_->session);
    soci::row row;
    statement.exchange(soci::into(row));
    const Parameters bound(statement, parameters);
    statement.alloc();
    statement.prepare(std::string(sql), soci::details::st_one_time_query);
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
    return impl_->failed(e, "query");
  }
}

Result<std::int64_t> Database::execute(std::string_view sql, std::vector<Value> parameters) {
  try {
    impl_->revive();
    const Impl::Watched watched(*impl_);
    if (is_worth_preparing(sql)) {
      Prepared& ready = impl_->prepare(sql, parameters);
      ready.statement.execute(true);
      return static_cast<std::int64_t>(ready.statement.get_affected_rows());
    }
    soci::statement statement(impl_->session);
    const Parameters bound(statement, parameters);
    statement.alloc();
    statement.prepare(std::string(sql), soci::details::st_one_time_query);
    statement.define_and_bind();
    statement.execute(true);
    return static_cast<std::int64_t>(statement.get_affected_rows());
  } catch (const std::exception& e) {
    // One that failed in its middle is not used again.
    impl_->prepared.erase(signature(sql, parameters));
    return impl_->failed(e, "statement");
  }
}

Status Database::Impl::run(Database& database, std::string_view begin, std::string_view lock,
                           const std::function<Status()>& body) {
  FLOTILLA_CHECK(!in_transaction, "transactions do not nest");
  auto begun = database.execute(begin);
  // The connection may have been lost while nobody used it.
  if (!begun.ok() && lost) begun = database.execute(begin);
  if (!begun.ok()) return std::move(begun).error();
  in_transaction = true;
  Status status = ok_status();
  if (!lock.empty()) {
    if (auto locked = database.execute(lock); !locked.ok()) status = std::move(locked).error();
  }
  if (status.ok()) status = body();
  if (status.ok()) {
    if (auto committed = database.execute("COMMIT"); !committed.ok())
      status = std::move(committed).error();
  }
  if (!status.ok())
    (void)database.execute("ROLLBACK");  // fails when the fault itself has undone everything
  in_transaction = false;
  return status;
}

Status Database::transaction(const std::function<Status()>& body) {
  return impl_->run(*this, begin_statement(impl_->backend), lock_statement(impl_->backend), body);
}

Status Database::snapshot(const std::function<Status()>& body) {
  return impl_->run(*this, snapshot_statement(impl_->backend), {}, body);
}

}  // namespace flotilla::store
