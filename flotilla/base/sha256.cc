#include "flotilla/base/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace flotilla {

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  FLOTILLA_CHECK(
      impl_->context != nullptr && EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1,
      "OpenSSL offers no SHA-256");
}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  FLOTILLA_CHECK(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1,
                 "SHA-256 update failed");
}
void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span(text.data(), text.size())));
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest{};
  unsigned size = 0;
  FLOTILLA_CHECK(
      EVP_DigestFinal_ex(impl_->context, digest.data(), &size) == 1 && size == digest.size(),
      "SHA-256 end failed");
  return digest;
}

Result<Sha256Digest> sha256_file(const std::string& path,
                                 const std::function<void(std::uint64_t)>& on_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int code = errno;
    return Error{code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kDataLoss,
                 "cannot open " + path + ": " + std::strerror(code)};
  }
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  // Reading, not mapping: a read error becomes an error here instead of SIGBUS.
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  Sha256 hash;
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) {
      hash.update(std::span<const std::byte>(buffer.data(), static_cast<std::size_t>(n)));
      if (on_bytes) on_bytes(static_cast<std::uint64_t>(n));
      continue;
    }
    if (n == 0) break;
    if (errno == EINTR) continue;
    const int code = errno;
    ::close(fd);
    return Error{ErrorCode::kDataLoss, "cannot read " + path + ": " + std::strerror(code)};
  }
  ::close(fd);
  return hash.finish();
}

}  // namespace flotilla
