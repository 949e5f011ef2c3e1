#include "flotilla/store/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "flotilla/store/backends.inc"
#include "flotilla/store/database.h"

namespace flotilla::store {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTryEvery{100};
constexpr std::int64_t kLock = 1'718'382'453;  // the one after the writers'
constexpr std::size_t kMaxWho = 60;

Error held_by(const std::string& path, const std::string& holder) {
  return Error{ErrorCode::kUnavailable,
               "database " + display_name(path) + " is in use by another coordinator" +
                   (holder.empty() ? "" : ": " + holder) + "; there can be one at a time"};
}

// The same file under another name is the same file.
std::string lock_path(const std::string& path) {
  std::array<char, PATH_MAX> real{};
  return std::string(::realpath(path.c_str(), real.data()) != nullptr ? real.data()
                                                                      : path.c_str()) +
         ".lock";
}

}  // namespace

struct Claim::Impl {
  ~Impl() {
    if (fd >= 0) ::close(fd);
  }
  // True when it is ours; else `holder` has it.
  Result<bool> try_file(std::string& holder);
  Result<bool> try_server(std::string& holder);
  Result<bool> try_once(std::string& holder) {
    return backend == Backend::kSqlite ? try_file(holder) : try_server(holder);
  }

  Backend backend = Backend::kSqlite;
  std::string path;
  std::string who;
  int fd = -1;
  std::optional<Database> session;
};

Result<bool> Claim::Impl::try_file(std::string& holder) {
  const std::string file = lock_path(path);
  if (fd < 0) fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Error{ErrorCode::kUnavailable,
                 "cannot open database " + path + ": " + file + ": " + std::strerror(errno)};
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Error{ErrorCode::kUnavailable, "cannot lock " + file + ": " + std::strerror(errno)};
    }
    std::array<char, kMaxWho> text{};
    const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
    holder.assign(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    holder = holder.substr(0, holder.find('\n'));
    return false;
  }
  const std::string line = who + "\n";
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
    return Error{ErrorCode::kUnavailable, "cannot write " + file + ": " + std::strerror(errno)};
  }
  return true;
}

Result<bool> Claim::Impl::try_server(std::string& holder) {
  if (!session) {
    FLOTILLA_TRY(session, Database::open(path, {.answer_timeout_ms = 10'000}));
  }
  FLOTILLA_TRY(const auto named,
               session->query("SELECT set_config('application_name', :p1, false)", {who}));
  FLOTILLA_TRY(const auto taken, session->query("SELECT CASE WHEN pg_try_advisory_lock(:p1) "
                                                "THEN 1 ELSE 0 END",
                                                {kLock}));
  if (!taken.empty() && taken[0].integer(0) == 1) return true;
  FLOTILLA_TRY(const auto rows,
               session->query("SELECT a.application_name FROM pg_locks l "
                              "JOIN pg_stat_activity a ON a.pid = l.pid "
                              "JOIN pg_database d ON d.oid = l.database "
                              "WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 "
                              "AND l.objid = :p1 AND d.datname = current_database()",
                              {kLock}));
  if (!rows.empty()) holder = rows[0].text(0);
  return false;
}

Claim::Claim(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Claim::~Claim() = default;
Claim::Claim(Claim&&) noexcept = default;
Claim& Claim::operator=(Claim&&) noexcept = default;

Result<Claim> Claim::take(const std::string& path, const std::string& who, milliseconds patience) {
  FLOTILLA_TRY(const Backend backend, backend_of(path));
  auto impl = std::make_unique<Impl>();
  impl->backend = backend;
  impl->path = path;
  impl->who = who.substr(0, kMaxWho);
  if (path == ":memory:") return Claim(std::move(impl));
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::string holder;
    FLOTILLA_TRY(const bool ours, impl->try_once(holder));
    if (ours) return Claim(std::move(impl));
    if (std::chrono::steady_clock::now() >= until) return held_by(path, holder);
    std::this_thread::sleep_for(kTryEvery);
  }
}

Status Claim::keep() {
  if (impl_->backend == Backend::kSqlite) return ok_status();  // no file loses its lock
  FLOTILLA_TRY(const auto rows,
               impl_->session->query("SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' "
                                     "AND granted AND classid = 0 AND objid = :p1 "
                                     "AND pid = pg_backend_pid()",
                                     {kLock}));
  if (!rows.empty() && rows[0].integer(0) > 0) return ok_status();
  std::string holder;
  FLOTILLA_TRY(const bool ours, impl_->try_server(holder));
  if (ours) return ok_status();
  Error error = held_by(impl_->path, holder);
  error.code = ErrorCode::kAlreadyExists;
  return error;
}

}  // namespace flotilla::store
