#include "flotilla/download/pull.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "flotilla/base/file.h"
#include "flotilla/base/text.h"
#include "flotilla/download/part_file.h"
#include "flotilla/log/log.h"

namespace flotilla::download {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kMaxBackoff{30'000};
constexpr int kMaxWrongSums = 2;
constexpr std::size_t kMaxManifestBytes = std::size_t{8} << 20;
constexpr const char* kManifestName = ".manifest.json";  // no file of a model is hidden

// Held by the one pull of a model.
class PullLock {
 public:
  static Result<PullLock> take(const std::string& path, const std::string& model) {
    for (int i = 0; i < 100; ++i) {
      const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
      if (fd < 0) return disk_error("cannot write " + path, errno);
      if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        ::close(fd);
        return Error{ErrorCode::kAlreadyExists,
                     "another pull of '" + model + "' is running (it holds " + path + ")"};
      }
      // The one before may have removed the file that was opened here.
      struct stat mine {
      }, there{};
      if (::fstat(fd, &mine) == 0 && ::stat(path.c_str(), &there) == 0 &&
          mine.st_ino == there.st_ino)
        return PullLock(path, fd);
      ::close(fd);
    }
    return Error{ErrorCode::kUnavailable, "cannot lock " + path};
  }
  ~PullLock() {
    if (fd_ < 0) return;
    ::unlink(path_.c_str());
    ::close(fd_);
  }
  PullLock(PullLock&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  PullLock& operator=(PullLock&&) = delete;

 private:
  PullLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Of a regular file; nullopt: there is none.
std::optional<std::uint64_t> size_of(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return static_cast<std::uint64_t>(info.st_size);
}

Status make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || (errno == EEXIST && is_folder(path))) return ok_status();
  return disk_error("cannot make the folder " + path, errno);
}

class Puller {
 public:
  Puller(const Source& source, const PullOptions& options)
      : source_(source),
        options_(options),
        manifest_(source.manifest),
        target_(options.models_dir + "/" + manifest_.model),
        staging_(options.models_dir + "/." + manifest_.model + ".pull") {}

  Result<Pulled> run();

 private:
  std::string place(const ManifestFile& file) const { return staging_ + "/" + file.path; }
  bool stopped() const { return stop_ || (options_.stop && options_.stop()); }
  void note(std::int64_t bytes);
  Status open_staging();
  Status keep_what_is_the_same();
  Status check_room();
  Status fetch_all();
  Status fetch_file(ManifestFile& file);
  Status fetch_rest(const ManifestFile& file, PartFile& part);
  void pause(milliseconds time);
  Error with_room(Error error) const;
  Status publish();

  const Source& source_;
  const PullOptions& options_;
  Manifest manifest_;
  const std::string target_, staging_;
  std::vector<ManifestFile*> open_;  // to be fetched, largest first
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> fetched_{0};
  std::mutex mutex_;
  std::condition_variable paused_;
  std::int64_t done_ = 0;  // guarded by mutex_
};

void Puller::note(std::int64_t bytes) {
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  done_ += bytes;
  if (options_.on_progress)
    options_.on_progress(static_cast<std::uint64_t>(std::max<std::int64_t>(done_, 0)),
                         manifest_.bytes());
}

void Puller::pause(milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  std::unique_lock lock(mutex_);
  while (!stopped() && std::chrono::steady_clock::now() < end)
    paused_.wait_for(lock, std::min(time, milliseconds(50)));
}

Status Puller::open_staging() {
  FLOTILLA_TRY_STATUS(make_folder(staging_));
  FLOTILLA_TRY_STATUS(keep_what_is_the_same());
  FLOTILLA_TRY_STATUS(write_small_file(staging_ + "/" + kManifestName, render_manifest(manifest_)));
  for (const ManifestFile& file : manifest_.files) {
    for (std::size_t at = file.path.find('/'); at != std::string::npos;
         at = file.path.find('/', at + 1))
      FLOTILLA_TRY_STATUS(make_folder(staging_ + "/" + file.path.substr(0, at)));
  }
  return ok_status();
}

// What an earlier pull left is of use where both manifests mean the same bytes.
Status Puller::keep_what_is_the_same() {
  std::map<std::string, ManifestFile> before;
  if (const auto text = read_file(staging_ + "/" + kManifestName, kMaxManifestBytes); text.ok()) {
    if (const auto manifest = parse_manifest(*text); manifest.ok()) {
      for (const ManifestFile& file : manifest->files) before.emplace(file.path, file);
    }
  }
  std::map<std::string, const ManifestFile*> now;
  for (const ManifestFile& file : manifest_.files) now.emplace(file.path, &file);
  std::vector<std::string> useless;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(staging_, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->is_directory(ec) && !it->is_symlink(ec)) continue;
    std::string path = fs::path(it->path()).lexically_relative(staging_).string();
    if (path == kManifestName) continue;
    std::string name = path;
    for (const std::string_view suffix : {".tag", ".part"}) {
      if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    }
    const auto old = before.find(name);
    const auto wanted = now.find(name);
    // Without a sum the same URL has to do; hubs name the commit in it.
    const bool same = old != before.end() && wanted != now.end() && !it->is_symlink(ec) &&
                      old->second.size == wanted->second->size &&
                      old->second.sha256 == wanted->second->sha256 &&
                      (!old->second.sha256.empty() || old->second.url == wanted->second->url);
    if (!same) useless.push_back(std::move(path));
  }
  if (ec) return Error{ErrorCode::kInternal, "cannot read " + staging_ + ": " + ec.message()};
  for (const std::string& path : useless) fs::remove(staging_ + "/" + path, ec);
  return ok_status();
}

Error Puller::with_room(Error error) const {
  if (error.code != ErrorCode::kResourceExhausted) return error;
  const auto total = manifest_.bytes();
  error.message += "; the model has " + std::to_string(total) + " bytes. Make room in " +
                   options_.models_dir + " and pull again: what was fetched is kept";
  return error;
}

Status Puller::check_room() {
  std::uint64_t wanted = 0;
  for (const ManifestFile* file : open_)
    wanted += file->size - std::min(file->size, size_of(place(*file) + ".part").value_or(0));
  std::optional<std::uint64_t> free;
  if (options_.free_bytes) {
    free = options_.free_bytes(staging_);
  } else if (struct statvfs info{}; ::statvfs(staging_.c_str(), &info) == 0) {
    free = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  }
  if (!free || wanted == 0 || wanted + options_.reserve_bytes <= *free) return ok_status();
  return Error{ErrorCode::kResourceExhausted,
               "'" + manifest_.model + "' needs " + std::to_string(wanted) + " more bytes in " +
                   options_.models_dir + ", which has " + std::to_string(*free) + " free (" +
                   std::to_string(options_.reserve_bytes) + " are left alone)"};
}

Status Puller::fetch_rest(const ManifestFile& file, PartFile& part) {
  FetchRequest request{.url = file.url, .token = source_.token_for(file.url)};
  request.from = part.bytes();
  // A weak tag does not speak of bytes.
  if (request.from > 0 && !part.tag().starts_with("W/")) request.if_range = part.tag();
  // Bytes that nothing vouches for are fetched again.
  if (request.from > 0 && request.if_range.empty() && file.sha256.empty()) {
    note(-static_cast<std::int64_t>(request.from));
    FLOTILLA_TRY_STATUS(part.restart({}));
    request.from = 0;
  }
  const auto wrong_size = [&](std::uint64_t has) {
    return Error{ErrorCode::kDataLoss, without_query(file.url) + " has " + std::to_string(has) +
                                           " bytes and should have " + std::to_string(file.size)};
  };
  FetchSinks sinks;
  sinks.stop = [this] { return stopped(); };
  sinks.on_head = [&](const FetchHead& head) -> Status {
    if (head.status == 416) {  // beyond the end of what is there now
      note(-static_cast<std::int64_t>(part.bytes()));
      FLOTILLA_TRY_STATUS(part.restart({}));
      return Error{ErrorCode::kUnavailable,
                   without_query(file.url) + " is shorter than before: from the beginning"};
    }
    if (!head.ok()) return status_error(head, file.url);
    if (head.status == 206) {
      if (head.range_first != request.from) {
        note(-static_cast<std::int64_t>(part.bytes()));
        FLOTILLA_TRY_STATUS(part.restart({}));
        return Error{ErrorCode::kUnavailable,
                     without_query(file.url) + " answered another range than was asked for"};
      }
      if (head.range_total && *head.range_total != file.size) return wrong_size(*head.range_total);
      return ok_status();
    }
    if (head.length && *head.length != file.size) return wrong_size(*head.length);
    // The whole file, whatever was asked for: it never goes behind what is there.
    note(-static_cast<std::int64_t>(part.bytes()));
    return part.restart(head.etag);
  };
  sinks.on_data = [&](std::string_view piece) -> Status {
    if (piece.size() > file.size - part.bytes()) return wrong_size(part.bytes() + piece.size());
    const std::uint64_t before = part.bytes();
    Status written = part.append(piece);
    note(static_cast<std::int64_t>(part.bytes() - before));
    fetched_ += part.bytes() - before;
    return written;
  };
  const auto head = fetch(request, options_.fetch, sinks);
  if (!head.ok()) return head.error();
  if (part.bytes() < file.size) {
    return Error{ErrorCode::kUnavailable, without_query(file.url) + " ended after " +
                                              std::to_string(part.bytes()) + " of " +
                                              std::to_string(file.size) + " bytes"};
  }
  return ok_status();
}

Status Puller::fetch_file(ManifestFile& file) {
  std::minstd_rand random(std::random_device{}());
  for (int wrong_sums = 0;;) {
    FLOTILLA_TRY(const auto part, PartFile::open(place(file), file.size, options_.write));
    note(static_cast<std::int64_t>(part->bytes()));
    milliseconds wait = options_.backoff;
    for (int attempt = 1; part->bytes() < file.size;) {
      const std::uint64_t before = part->bytes();
      Status fetched = fetch_rest(file, *part);
      if (fetched.ok()) break;
      Error error = std::move(fetched).error();
      if (error.code != ErrorCode::kUnavailable) return error;
      if (part->bytes() > before) {  // it moves
        attempt = 1;
        wait = options_.backoff;
      } else if (++attempt > options_.max_attempts) {
        error.message += "; given up after " + std::to_string(options_.max_attempts) + " attempts";
        return error;
      }
      log::debug("download_interrupted", {{"file", file.path}, {"reason", error.message}});
      const milliseconds jitter(random() % (static_cast<unsigned>(wait.count()) / 4 + 1));
      pause(std::max<milliseconds>(wait + jitter, std::chrono::seconds(error.retry_after_s)));
      if (stopped()) return Error{ErrorCode::kCancelled, "stopped"};
      wait = std::min(wait * 2, kMaxBackoff);
    }
    const std::string sum = part->finish_sum();
    if (file.sha256.empty() || sum == file.sha256) {
      file.sha256 = sum;
      return part->publish();
    }
    // This file alone is fetched again, once.
    note(-static_cast<std::int64_t>(part->bytes()));
    part->discard();
    log::warn("download_sum_wrong", {{"file", file.path}, {"sum", sum}, {"wanted", file.sha256}});
    if (++wrong_sums == kMaxWrongSums) {
      return Error{ErrorCode::kDataLoss, "'" + file.path + "' came with the sum " + sum + ", not " +
                                             file.sha256 + ", " + std::to_string(kMaxWrongSums) +
                                             " times"};
    }
  }
}

Status Puller::fetch_all() {
  std::atomic<std::size_t> next{0};
  std::optional<Error> failure;  // guarded by mutex_; the first
  const auto work = [&] {
    for (std::size_t i; !stopped() && (i = next.fetch_add(1)) < open_.size();) {
      Status fetched = fetch_file(*open_[i]);
      if (fetched.ok()) continue;
      std::lock_guard lock(mutex_);
      if (!failure) failure = std::move(fetched).error();
      stop_ = true;
      paused_.notify_all();
    }
  };
  const auto num = std::min<std::size_t>(static_cast<std::size_t>(std::max(1, options_.parallel)),
                                         std::max<std::size_t>(open_.size(), 1));
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < num; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) return with_room(std::move(*failure));
  if (stopped()) return Error{ErrorCode::kCancelled, "stopped"};
  return ok_status();
}

Status Puller::publish() {
  std::error_code ec;
  for (fs::recursive_directory_iterator it(staging_, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->is_directory(ec)) FLOTILLA_TRY_STATUS(sync_folder(it->path().string()));
  }
  FLOTILLA_TRY_STATUS(sync_folder(staging_));
  const auto rename_with = [](const std::string& from, const std::string& to, unsigned flags) {
    return ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0;
  };
  const auto unknown_flag = [] { return errno == EINVAL || errno == ENOSYS; };
  if (!options_.replace || !fs::exists(fs::symlink_status(target_, ec))) {
    bool moved = rename_with(staging_, target_, RENAME_NOREPLACE);
    if (!moved && unknown_flag() && !fs::exists(fs::symlink_status(target_, ec)))
      moved = ::rename(staging_.c_str(), target_.c_str()) == 0;
    if (!moved) return disk_error("cannot rename " + staging_ + " to " + target_, errno);
  } else if (rename_with(staging_, target_, RENAME_EXCHANGE)) {
    // The name never means nothing, nor half of something.
    fs::remove_all(staging_, ec);
  } else if (unknown_flag()) {  // a file system that cannot exchange: for a moment there is none
    const std::string old = staging_ + ".old";
    fs::remove_all(old, ec);
    if (::rename(target_.c_str(), old.c_str()) != 0)
      return disk_error("cannot rename " + target_ + " to " + old, errno);
    if (::rename(staging_.c_str(), target_.c_str()) != 0) {
      const int why = errno;
      (void)::rename(old.c_str(), target_.c_str());
      return disk_error("cannot rename " + staging_ + " to " + target_, why);
    }
    fs::remove_all(old, ec);
  } else {
    return disk_error("cannot exchange " + target_ + " for " + staging_, errno);
  }
  // Only now: while the folder has not its name, the list says what in it is whole.
  fs::remove(target_ + "/" + kManifestName, ec);
  return sync_folder(options_.models_dir);
}

Result<Pulled> Puller::run() {
  FLOTILLA_TRY_STATUS(check(manifest_));
  for (const ManifestFile& file : manifest_.files) {
    if (origin_of(file.url).empty())
      return Error{ErrorCode::kInvalidArgument, "the manifest has no URL of '" + file.path + "'"};
  }
  std::error_code ec;
  fs::create_directories(options_.models_dir, ec);
  if (ec) {
    return Error{ErrorCode::kPermissionDenied,
                 "cannot make the folder " + options_.models_dir + ": " + ec.message()};
  }
  FLOTILLA_TRY(
      const PullLock lock,
      PullLock::take(options_.models_dir + "/." + manifest_.model + ".lock", manifest_.model));
  if (fs::exists(fs::symlink_status(target_, ec)) && !options_.replace) {
    return Error{ErrorCode::kAlreadyExists,
                 target_ + " is there already, with other files; --replace puts this in its place"};
  }
  if (Status opened = open_staging(); !opened.ok()) return with_room(std::move(opened).error());
  for (ManifestFile& file : manifest_.files) {
    if (size_of(place(file)) != file.size) {
      fs::remove(place(file), ec);
      open_.push_back(&file);
      continue;
    }
    // Its sum was right when it got its name.
    if (file.sha256.empty()) {
      FLOTILLA_TRY(const Sha256Digest sum, sha256_file(place(file)));
      file.sha256 = to_hex(sum);
    }
    note(static_cast<std::int64_t>(file.size));
  }
  std::stable_sort(open_.begin(), open_.end(),
                   [](const auto* a, const auto* b) { return a->size > b->size; });
  FLOTILLA_TRY_STATUS(check_room());
  FLOTILLA_TRY_STATUS(fetch_all());
  manifest_.digest = digest_of(manifest_.files);
  FLOTILLA_TRY_STATUS(publish());
  return Pulled{target_, std::move(manifest_), fetched_};
}

}  // namespace

std::string Source::token_for(std::string_view url) const {
  const std::string origin = origin_of(url);
  for (const auto& [known, token] : tokens) {
    if (known == origin) return token;
  }
  return {};
}

Result<Pulled> pull(const Source& source, const PullOptions& options) {
  return Puller(source, options).run();
}

}  // namespace flotilla::download
