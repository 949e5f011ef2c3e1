#include "flotilla/protocol/identity.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "flotilla/base/text.h"
#include "flotilla/protocol/sodium_init.h"

namespace flotilla::protocol {
namespace {

const unsigned char* as_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

constexpr std::string_view kKeyFileHeader = "flotilla-identity-1 ";

std::string system_error(std::string_view what, const std::string& path) {
  return std::string(what) + " " + path + ": " + std::strerror(errno);
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Result<Seed> read_seed(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    return Error{ErrorCode::kInternal, system_error("cannot inspect key file", path)};
  }
  if ((info.st_mode & 077) != 0) {
    return Error{ErrorCode::kPermissionDenied,
                 "key file " + path + " may be read by others; run: chmod 600 " + path};
  }
  char buffer[256];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n < 0) return Error{ErrorCode::kInternal, system_error("cannot read key file", path)};
  std::string_view text = trim_ascii(std::string_view(buffer, static_cast<std::size_t>(n)));
  std::optional<std::vector<std::uint8_t>> bytes;
  if (text.starts_with(kKeyFileHeader)) {
    bytes = from_base64url(text.substr(kKeyFileHeader.size()));
  }
  sodium_memzero(buffer, sizeof buffer);
  if (!bytes || bytes->size() != 32) {
    return Error{ErrorCode::kDataLoss, "key file " + path + " is damaged"};
  }
  Seed seed;
  std::memcpy(seed.bytes.data(), bytes->data(), 32);
  sodium_memzero(bytes->data(), bytes->size());
  return seed;
}

}  // namespace

std::string to_text(const PublicKey& key) { return to_base64url(key.bytes); }

Result<PublicKey> public_key_from_text(std::string_view text) {
  const auto bytes = from_base64url(text);
  if (!bytes || bytes->size() != 32) {
    return Error{ErrorCode::kInvalidArgument, "a public key is 32 bytes in base64url"};
  }
  PublicKey key;
  std::memcpy(key.bytes.data(), bytes->data(), 32);
  return key;
}

std::string fingerprint(const PublicKey& key) {
  std::array<std::uint8_t, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256(digest.data(), key.bytes.data(), key.bytes.size());
  return flotilla::to_hex(std::span(digest).first(8));
}

ProviderId provider_id(const PublicKey& key) { return ProviderId{fingerprint(key)}; }

Identity Identity::generate() { return from_seed(random_seed()); }

Identity Identity::from_seed(const Seed& seed) {
  init_sodium();
  Identity identity;
  identity.seed_ = seed;
  crypto_sign_seed_keypair(identity.public_key_.bytes.data(), identity.secret_key_.data(),
                           seed.bytes.data());
  return identity;
}

Identity::~Identity() {
  sodium_memzero(seed_.bytes.data(), seed_.bytes.size());
  sodium_memzero(secret_key_.data(), secret_key_.size());
}

Result<Identity> Identity::load_or_create(const std::string& path) {
  const File existing(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (existing.fd() >= 0) {
    FLOTILLA_TRY(const Seed seed, read_seed(existing.fd(), path));
    return from_seed(seed);
  }
  if (errno != ENOENT) {
    return Error{ErrorCode::kPermissionDenied, system_error("cannot open key file", path)};
  }
  // Written aside and linked into place: of two processes that create it at once, both end with the
  // first one's key, and nobody ever sees half a file.
  const std::string temporary = path + "." + std::to_string(::getpid()) + ".new";
  const Identity fresh = generate();
  {
    const File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.fd() < 0) {
      return Error{ErrorCode::kPermissionDenied, system_error("cannot create key file", temporary)};
    }
    std::string text = std::string(kKeyFileHeader) + to_base64url(fresh.seed_.bytes) + "\n";
    const ssize_t n = ::write(file.fd(), text.data(), text.size());
    const bool written = n == static_cast<ssize_t>(text.size()) && ::fsync(file.fd()) == 0;
    sodium_memzero(text.data(), text.size());
    if (!written) {
      Error error{ErrorCode::kInternal, system_error("cannot write key file", temporary)};
      ::unlink(temporary.c_str());
      return error;
    }
  }
  const bool linked = ::link(temporary.c_str(), path.c_str()) == 0;
  const bool lost_race = !linked && errno == EEXIST;
  Error error{ErrorCode::kInternal, system_error("cannot create key file", path)};
  ::unlink(temporary.c_str());
  if (lost_race) return load_or_create(path);
  if (!linked) return error;
  return fresh;
}

Signature Identity::sign(std::string_view message) const {
  Signature signature{};
  crypto_sign_detached(signature.data(), nullptr, as_bytes(message), message.size(),
                       secret_key_.data());
  return signature;
}

bool verify(const PublicKey& key, std::string_view message, const Signature& signature) {
  init_sodium();
  return crypto_sign_verify_detached(signature.data(), as_bytes(message), message.size(),
                                     key.bytes.data()) == 0;
}

Seed random_seed() {
  init_sodium();
  Seed seed;
  randombytes_buf(seed.bytes.data(), seed.bytes.size());
  return seed;
}

JobId random_job_id() {
  init_sodium();
  JobId id;
  randombytes_buf(id.bytes.data(), id.bytes.size());
  return id;
}

std::string to_hex(const JobId& id) { return flotilla::to_hex(id.bytes); }

std::string tool_call_id(const JobId& job, std::uint32_t index) {
  std::array<std::uint8_t, 20> input{};
  std::memcpy(input.data(), job.bytes.data(), 16);
  for (unsigned i = 0; i < 4; ++i) input[16 + i] = static_cast<std::uint8_t>(index >> (8 * i));
  std::array<std::uint8_t, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256(digest.data(), input.data(), input.size());
  return "call_" + flotilla::to_hex(std::span(digest).first(12));
}

}  // namespace flotilla::protocol
