// SHA-256 of bytes and files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla {

using Sha256Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // Ends the computation.
  Sha256Digest finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// `on_bytes` (may be empty) is told the size of each piece read.
Result<Sha256Digest> sha256_file(const std::string& path,
                                 const std::function<void(std::uint64_t)>& on_bytes = {});

}  // namespace flotilla
