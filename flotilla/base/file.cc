#include "flotilla/base/file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace flotilla {
namespace {

constexpr std::size_t kChunk = 1u << 20;

Error failed(const char* what, const std::string& path, int reason) {
  ErrorCode code = ErrorCode::kDataLoss;
  if (reason == ENOENT || reason == ENOTDIR) code = ErrorCode::kNotFound;
  if (reason == EACCES || reason == EPERM) code = ErrorCode::kPermissionDenied;
  if (reason == EISDIR) code = ErrorCode::kInvalidArgument;
  return {code, std::string("cannot ") + what + " " + path + ": " + std::strerror(reason)};
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (!file) return failed("open", path, errno);
  std::string text;
  while (text.size() <= max_bytes) {
    const std::size_t before = text.size();
    text.resize(before + kChunk);
    errno = 0;
    const std::size_t n = std::fread(text.data() + before, 1, kChunk, file.get());
    text.resize(before + n);
    if (std::ferror(file.get())) return failed("read", path, errno);
    if (n < kChunk) break;
  }
  if (text.size() > max_bytes) {
    return Error{ErrorCode::kTooLarge,
                 path + " exceeds the limit of " + std::to_string(max_bytes) + " bytes"};
  }
  return text;
}

}  // namespace flotilla
