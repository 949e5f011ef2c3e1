#include "flotilla/download/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "flotilla/base/file.h"
#include "flotilla/base/text.h"

namespace flotilla::download {
namespace {

constexpr std::size_t kMaxTag = 512, kBuffer = std::size_t{1} << 20;

}  // namespace

Error disk_error(const std::string& what, int code) {
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  return {full ? ErrorCode::kResourceExhausted
               : (code == EACCES || code == EPERM || code == EROFS ? ErrorCode::kPermissionDenied
                                                                   : ErrorCode::kInternal),
          what + ": " + std::strerror(code)};
}

Status write_small_file(const std::string& path, std::string_view content) {
  const std::string fresh = path + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return disk_error("cannot write " + fresh, errno);
  const bool written =
      ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()) &&
      ::fsync(fd) == 0;
  const int code = errno;
  ::close(fd);
  if (!written) return disk_error("cannot write " + fresh, code);
  if (::rename(fresh.c_str(), path.c_str()) != 0)
    return disk_error("cannot rename " + fresh, errno);
  return ok_status();
}

Status sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return disk_error("cannot open " + path, errno);
  const int done = ::fsync(fd), code = errno;
  ::close(fd);
  if (done != 0 && code != EINVAL) return disk_error("cannot sync " + path, code);
  return ok_status();
}

PartFile::PartFile(std::string path, int fd, Write write)
    : path_(std::move(path)),
      part_path_(path_ + ".part"),
      tag_path_(path_ + ".part.tag"),
      fd_(fd),
      write_(write ? std::move(write) : [](int to, const void* data, std::size_t size) {
        return static_cast<std::int64_t>(::write(to, data, size));
      }) {}

PartFile::~PartFile() { ::close(fd_); }

Result<std::unique_ptr<PartFile>> PartFile::open(const std::string& path, std::uint64_t size,
                                                 Write write) {
  const std::string part = path + ".part";
  const int fd = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return disk_error("cannot write " + part, errno);
  std::unique_ptr<PartFile> out(new PartFile(path, fd, std::move(write)));
  FLOTILLA_TRY_STATUS(out->read_present(size));
  return out;
}

Status PartFile::read_present(std::uint64_t size) {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return disk_error("cannot read " + part_path_, errno);
  if (!S_ISREG(info.st_mode))
    return Error{ErrorCode::kInternal, part_path_ + " is no regular file"};
  if (auto tag = read_file(tag_path_, kMaxTag); tag.ok()) tag_ = *tag;
  if (static_cast<std::uint64_t>(info.st_size) > size) return restart({});
  std::vector<char> buffer(kBuffer);
  while (true) {
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return disk_error("cannot read " + part_path_, errno);
    if (n == 0) return ok_status();
    sum_->update(std::string_view(buffer.data(), static_cast<std::size_t>(n)));
    bytes_ += static_cast<std::uint64_t>(n);
  }
}

Status PartFile::restart(const std::string& tag) {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0)
    return disk_error("cannot write " + part_path_, errno);
  bytes_ = 0;
  sum_ = std::make_unique<Sha256>();
  tag_ = tag.size() <= kMaxTag ? tag : "";
  if (tag_.empty()) {
    ::unlink(tag_path_.c_str());
    return ok_status();
  }
  return write_small_file(tag_path_, tag_);
}

Status PartFile::append(std::string_view piece) {
  while (!piece.empty()) {
    const std::int64_t n = write_(fd_, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return disk_error(
          "cannot write " + part_path_ + " beyond " + std::to_string(bytes_) + " bytes", errno);
    }
    sum_->update(piece.substr(0, static_cast<std::size_t>(n)));
    bytes_ += static_cast<std::uint64_t>(n);
    piece.remove_prefix(static_cast<std::size_t>(n));
  }
  return ok_status();
}

std::string PartFile::finish_sum() { return to_hex(sum_->finish()); }

Status PartFile::publish() {
  if (::fsync(fd_) != 0) return disk_error("cannot sync " + part_path_, errno);
  if (::rename(part_path_.c_str(), path_.c_str()) != 0)
    return disk_error("cannot rename " + part_path_, errno);
  ::unlink(tag_path_.c_str());
  return ok_status();
}

void PartFile::discard() {
  ::unlink(part_path_.c_str());
  ::unlink(tag_path_.c_str());
}

}  // namespace flotilla::download
