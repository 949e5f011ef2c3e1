#include "flotilla/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace flotilla::checkpoint {
namespace {

class FileHandle {
 public:
  explicit FileHandle(int fd) : fd_(fd) {}
  ~FileHandle() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Error os_error(const std::string& what, const std::string& path) {
  const int code = errno;
  const ErrorCode kind = code == ENOENT || code == ENOTDIR ? ErrorCode::kNotFound
                         : code == EACCES                  ? ErrorCode::kPermissionDenied
                                                           : ErrorCode::kDataLoss;
  return Error{kind, what + " " + path + ": " + std::strerror(code)};
}

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return os_error("cannot open", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return os_error("cannot stat", path);
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, path + " is not a regular file"};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  std::byte* data = nullptr;
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) return os_error("cannot map", path);
    data = static_cast<std::byte*>(mapped);
  }
  return std::shared_ptr<MappedFile>(new MappedFile(data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedFile::prefetch() const {
  // Advice only: a refusal costs speed, nothing else.
  if (data_ != nullptr) ::madvise(data_, size_, MADV_WILLNEED);
}

}  // namespace flotilla::checkpoint
