#include "apps/flotilla/node_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "flotilla/base/file.h"
#include "flotilla/base/text.h"

namespace flotilla::apps {
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxSmallFile = 64u << 10;
constexpr const char* kKeyFile = "/node.key";
constexpr const char* kLockFile = "/lock";
constexpr const char* kTokenFile = "/join-token";

Result<std::string> read_small_file(const std::string& path) {
  FLOTILLA_TRY(const std::string text, read_file(path, kMaxSmallFile));
  return std::string(trim_ascii(text));
}

// Complete or not at all, and never readable by others.
Status write_secret_file(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  const auto failed = [&](const char* what) {
    const Error error{ErrorCode::kPermissionDenied,
                      std::string("cannot ") + what + " " + path + ": " + std::strerror(errno)};
    ::unlink(draft.c_str());
    return error;
  };
  ::unlink(draft.c_str());
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failed("create");
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0;
  ::close(fd);
  if (!written) return failed("write");
  if (::rename(draft.c_str(), path.c_str()) != 0) return failed("write");
  return ok_status();
}

}  // namespace

std::string default_state_dir() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state == '/')
    return std::string(state) + "/flotilla";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return std::string(home) + "/.local/state/flotilla";
  return "flotilla-state";
}

Result<NodeLock> NodeLock::take(const std::string& dir) {
  const std::string path = dir + kLockFile;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return Error{ErrorCode::kPermissionDenied, "cannot open " + path + ": " + std::strerror(errno)};
  NodeLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kAlreadyExists,
                 "another flotilla provider runs with the state folder " + dir +
                     "; a second node needs a --state-dir and a join token of its own"};
  }
  return lock;
}

NodeLock::~NodeLock() {
  if (fd_ >= 0) ::close(fd_);
}

bool has_node_state(const std::string& dir) {
  return ::access((dir + kTokenFile).c_str(), F_OK) == 0;
}

Result<NodeState> open_node_state(const std::string& dir, const std::string& join) {
  std::error_code ec;
  fs::create_directories(dir, ec);
  if (ec) return Error{ErrorCode::kPermissionDenied, "cannot create " + dir + ": " + ec.message()};
  std::string text = join;
  if (join.empty()) {
    auto kept = read_small_file(dir + kTokenFile);
    if (!kept.ok()) {
      return Error{ErrorCode::kInvalidArgument,
                   "this node has not joined a fleet yet: give --join TOKEN, from: "
                   "flotilla-coordinator nodes invite NAME"};
    }
    text = std::move(*kept);
  } else if (join.front() == '@') {
    FLOTILLA_TRY(text, read_small_file(join.substr(1)));
  }
  FLOTILLA_TRY(protocol::JoinToken token, protocol::join_token_from_text(text));
  FLOTILLA_TRY(protocol::Identity identity, protocol::Identity::load_or_create(dir + kKeyFile));
  if (join.empty()) text.clear();
  return NodeState{std::move(identity), std::move(token), std::move(text)};
}

Status keep_token(const std::string& dir, const std::string& text) {
  return write_secret_file(dir + kTokenFile, text);
}

}  // namespace flotilla::apps
