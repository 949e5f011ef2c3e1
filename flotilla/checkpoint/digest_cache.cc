#include "flotilla/checkpoint/digest_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace bj = boost::json;
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMaxEntries = 4096;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

Error os_error(const std::string& what, const std::string& path) {
  return Error{ErrorCode::kUnavailable, what + " " + path + ": " + std::strerror(errno)};
}

Status write_atomically(const std::string& path, const std::string& text) {
  const std::string temporary = path + "." + std::to_string(::getpid()) + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return os_error("cannot create", temporary);
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(fd, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Error error = os_error("cannot write", temporary);
      ::close(fd);
      ::unlink(temporary.c_str());
      return error;
    }
    written += static_cast<std::size_t>(n);
  }
  ::close(fd);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    Error error = os_error("cannot replace", path);
    ::unlink(temporary.c_str());
    return error;
  }
  return ok_status();
}

}  // namespace

Result<FileStamp> stamp_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error{ErrorCode::kNotFound, "no file " + path};
  }
  FileStamp stamp;
  stamp.size = static_cast<std::uint64_t>(info.st_size);
  stamp.mtime_ns = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  stamp.inode = info.st_ino;
  return stamp;
}

std::string DigestCache::default_folder() {
  const auto env = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string own = env("FLOTILLA_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = env("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/flotilla";
  if (const std::string home = env("HOME"); !home.empty()) return home + "/.cache/flotilla";
  return "";
}

DigestCache::DigestCache(std::string folder) : folder_(std::move(folder)), entries_(read()) {}

std::map<std::string, DigestCache::Entry> DigestCache::read() const {
  std::map<std::string, Entry> entries;
  if (folder_.empty()) return entries;
  const auto parsed =
      json::parse_file(folder_ + "/digests.json", {.max_bytes = 16u << 20, .max_depth = 8});
  if (!parsed.ok()) return entries;
  const auto version = json::get_int(*parsed, "version", kMin, kMax);
  const bj::value* files = json::find(*parsed, "files");
  if (!version.ok() || *version != kVersion || files == nullptr || !files->is_object())
    return entries;
  for (const auto& member : files->get_object()) {
    const auto size = json::require_int(member.value(), "size", 0, kMax);
    const auto mtime = json::require_int(member.value(), "mtime_ns", kMin, kMax);
    const auto inode = json::require_int(member.value(), "inode", 0, kMax);
    auto sha256 = json::require_string(member.value(), "sha256");
    if (!size.ok() || !mtime.ok() || !inode.ok() || !sha256.ok() || sha256->size() != 64) continue;
    entries[std::string(member.key())] = {
        {static_cast<std::uint64_t>(*size), *mtime, static_cast<std::uint64_t>(*inode)},
        std::move(*sha256)};
  }
  return entries;
}

std::optional<std::string> DigestCache::find(const std::string& path,
                                             const FileStamp& stamp) const {
  for (const auto* entries : {&added_, &entries_}) {
    if (const auto it = entries->find(path); it != entries->end()) {
      return it->second.stamp == stamp ? std::optional(it->second.sha256) : std::nullopt;
    }
  }
  return std::nullopt;
}

void DigestCache::put(const std::string& path, const FileStamp& stamp, std::string sha256) {
  added_[path] = {stamp, std::move(sha256)};
}

Status DigestCache::save() {
  if (folder_.empty() || added_.empty()) return ok_status();
  std::error_code ec;
  std::filesystem::create_directories(folder_, ec);
  const std::string lock_path = folder_ + "/digests.lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return os_error("cannot open", lock_path);
  ::flock(lock, LOCK_EX);
  entries_ = read();
  for (auto& [path, entry] : added_) entries_[path] = std::move(entry);
  added_.clear();
  // Files that are gone make room before files that exist.
  if (entries_.size() > kMaxEntries) {
    std::erase_if(entries_, [](const auto& item) { return !stamp_file(item.first).ok(); });
  }
  bj::object files;
  for (const auto& [path, entry] : entries_) {
    files[path] = {{"size", static_cast<std::int64_t>(entry.stamp.size)},
                   {"mtime_ns", entry.stamp.mtime_ns},
                   {"inode", static_cast<std::int64_t>(entry.stamp.inode)},
                   {"sha256", entry.sha256}};
  }
  const bj::value document = {{"version", kVersion}, {"files", std::move(files)}};
  Status status = write_atomically(folder_ + "/digests.json", bj::serialize(document) + "\n");
  ::close(lock);  // also unlocks
  return status;
}

}  // namespace flotilla::checkpoint
