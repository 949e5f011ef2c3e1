#include "flotilla/engine/digest.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <vector>

#include "flotilla/base/check.h"
#include "flotilla/base/text.h"

namespace flotilla::engine {
namespace {

std::string sha256_hex(const void* data, std::size_t size) {
  std::array<std::uint8_t, 32> digest{};
  unsigned int length = 0;
  const int ok = EVP_Digest(data, size, digest.data(), &length, EVP_sha256(), nullptr);
  FLOTILLA_CHECK(ok == 1 && length == digest.size(), "SHA-256 is not available");
  return to_hex(digest);
}

}  // namespace

std::string digest_of_ids(std::span<const TokenId> ids) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(ids.size() * 4);
  for (const TokenId id : ids) {
    const auto value = static_cast<std::uint32_t>(id);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<std::uint8_t>(value >> shift));
    }
  }
  return sha256_hex(bytes.data(), bytes.size());
}

std::string digest_of_text(std::string_view text) { return sha256_hex(text.data(), text.size()); }

}  // namespace flotilla::engine
