#include "flotilla/store/backends.inc"

#include <fcntl.h>
#include <soci/postgresql/soci-postgresql.h>
#include <soci/sqlite3/soci-sqlite3.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace flotilla::store {
namespace {

ErrorCode code_of_sqlite(int result, const char* message) {
  switch (result & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CANTOPEN:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
      return ErrorCode::kUnavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::kDataLoss;
    case SQLITE_CONSTRAINT:
      return std::strstr(message, "UNIQUE") != nullptr ? ErrorCode::kAlreadyExists
                                                       : ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kInternal;
  }
}

// By the class of the SQLSTATE. Without one the fault is the connection's.
ErrorCode code_of_postgres(const std::string& state) {
  if (state == "23505") return ErrorCode::kAlreadyExists;
  const std::string_view kind = std::string_view(state).substr(0, 2);
  if (kind == "23") return ErrorCode::kInvalidArgument;
  for (const std::string_view passing : {"08", "40", "53", "55", "57", "58", "25"}) {
    if (kind == passing) return ErrorCode::kUnavailable;
  }
  if (kind == "XX") return ErrorCode::kDataLoss;
  const bool has_state = !kind.empty() && kind[0] != ' ' && kind[0] != '\0';
  return has_state ? ErrorCode::kInternal : ErrorCode::kUnavailable;
}

// SQLite would create the file with the process's umask. A file that is there is not even opened:
// closing it again would drop the locks that this process's other sessions hold on it.
Status create_private_file(const std::string& path, bool create) {
  if (::access(path.c_str(), F_OK) == 0) return ok_status();
  if (!create) {
    return Error{ErrorCode::kNotFound,
                 "cannot open database " + path + ": " + std::strerror(errno)};
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno != EEXIST) {
    return Error{ErrorCode::kUnavailable,
                 "cannot open database " + path + ": " + std::strerror(errno)};
  }
  if (fd >= 0) ::close(fd);
  return ok_status();
}

Status open_sqlite(soci::session& session, const std::string& path,
                   const DatabaseOptions& options) {
  if (path.empty() || path.find('"') != std::string::npos) {
    return Error{ErrorCode::kInvalidArgument, "'" + path + "' is not a path for a database file"};
  }
  if (path != ":memory:") FLOTILLA_TRY_STATUS(create_private_file(path, options.create));
  session.open(soci::sqlite3, "db=\"" + path + "\"");
  std::string journal;
  session << "PRAGMA busy_timeout = " + std::to_string(options.busy_timeout_ms);
  // Readers and the one writer do not wait for each other, and a commit costs one sync of the log.
  session << "PRAGMA journal_mode = WAL", soci::into(journal);
  if (path != ":memory:" && journal != "wal") {
    return Error{
        ErrorCode::kUnavailable,
        "database " + path + " cannot use a write-ahead log; is it on a network file system?"};
  }
  session << "PRAGMA synchronous = FULL";
  session << "PRAGMA foreign_keys = ON";
  return ok_status();
}

}  // namespace

Result<Backend> backend_of(const std::string& path) {
  const std::size_t scheme = path.find("://");
  if (scheme == std::string::npos) return Backend::kSqlite;
  const std::string_view name = std::string_view(path).substr(0, scheme);
  if (name == "postgresql" || name == "postgres") return Backend::kPostgres;
  return Error{ErrorCode::kUnsupported,
               "database '" + std::string(name) +
                   "': write a path for a SQLite file, or postgresql://USER@HOST/NAME"};
}

std::string with_timeouts(std::string url) {
  const auto add = [&](const std::string& name, const char* value) {
    const std::size_t query = url.find('?');
    const bool is_set =
        query != std::string::npos && (url.find("?" + name + "=", query) != std::string::npos ||
                                       url.find("&" + name + "=", query) != std::string::npos);
    if (is_set) return;
    if (query == std::string::npos) {
      url += '?';
    } else if (!url.ends_with('?') && !url.ends_with('&')) {
      url += '&';
    }
    url += name + "=" + value;
  };
  add("connect_timeout", "5");       // seconds
  add("tcp_user_timeout", "10000");  // milliseconds that sent data may stay unacknowledged
  return url;
}

int socket_of(soci::session& session) {
  // No dynamic_cast: SOCI's library does not export what it would need.
  if (session.get_backend() == nullptr || session.get_backend_name() != "postgresql") return -1;
  const auto* backend = static_cast<soci::postgresql_session_backend*>(session.get_backend());
  return backend->conn_ == nullptr ? -1 : ::PQsocket(backend->conn_);
}

void set_up_postgres(soci::session& session, const DatabaseOptions& options) {
  session << "SET client_min_messages = warning";
  // Of a machine that is gone the server has to hear soon: it holds locks that another one waits
  // for.
  session << "SET tcp_keepalives_idle = 10";
  session << "SET tcp_keepalives_interval = 5";
  session << "SET tcp_keepalives_count = 3";
  session << "SET lock_timeout = " + std::to_string(options.busy_timeout_ms);
  session << "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED";
}

Status open_session(soci::session& session, Backend backend, const std::string& path,
                    const DatabaseOptions& options) {
  try {
    if (backend == Backend::kSqlite) return open_sqlite(session, path, options);
    session.open(soci::postgresql, with_timeouts(path));
    set_up_postgres(session, options);
    return ok_status();
  } catch (const std::exception& e) {
    Error error = to_error(e, "open " + display_name(path));
    if (backend == Backend::kPostgres) error.code = ErrorCode::kUnavailable;
    return error;
  }
}

std::string_view begin_statement(Backend backend) {
  // IMMEDIATE: a reader that turned writer could otherwise fail with a busy error that no waiting
  // cures.
  return backend == Backend::kSqlite ? "BEGIN IMMEDIATE" : "BEGIN";
}

std::string_view lock_statement(Backend backend) {
  // SQLite has one writer; here all our writers agree to be one, so that what a transaction has
  // read stays true until it commits. Readers are not held up.
  return backend == Backend::kSqlite ? "" : "SELECT pg_advisory_xact_lock(1718382452)";
}

std::string_view snapshot_statement(Backend backend) {
  return backend == Backend::kSqlite ? "BEGIN" : "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
}

Error to_error(const std::exception& e, std::string_view what) {
  Error error{ErrorCode::kInternal, "database: " + std::string(what) + ": " + e.what()};
  if (const auto* sqlite = dynamic_cast<const soci::sqlite3_soci_error*>(&e)) {
    error.code = code_of_sqlite(sqlite->result(), e.what());
  } else if (const auto* postgres = dynamic_cast<const soci::postgresql_soci_error*>(&e)) {
    error.code = code_of_postgres(postgres->sqlstate());
  }
  return error;
}

std::string display_name(const std::string& path) {
  const std::size_t scheme = path.find("://");
  if (scheme == std::string::npos) return path;
  // Whatever could be a password goes: behind the user's name, and in the options.
  std::string rest = path.substr(scheme + 3);
  std::string user;
  // libpq looks for the '@' before the first '/', and to it a '?' in a password is a letter.
  std::size_t at = rest.find('@');
  if (at > rest.find('/')) at = rest.substr(0, rest.find('?')).rfind('@');
  if (at != std::string::npos) {
    const std::size_t host_end = rest.find_first_of("/?", at);
    at = std::max(at, rest.substr(0, host_end).rfind('@'));  // a password with '@'
    user = rest.substr(0, std::min(at, rest.find_first_of(":/?"))) + "@";
    rest.erase(0, at + 1);
  } else if (const std::size_t colon = rest.find(':'); colon != std::string::npos) {
    // What is no port may be a password in the wrong place.
    const std::size_t end = rest.find_first_not_of("0123456789", colon + 1);
    if (end != std::string::npos && rest[end] != '/' && rest[end] != '?') rest.erase(colon);
  }
  return path.substr(0, scheme + 3) + user + rest.substr(0, rest.find('?'));
}

}  // namespace flotilla::store
