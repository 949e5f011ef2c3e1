// The names of a token sequence's prefixes: what a prefix cache looks up.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"

namespace flotilla::state {

// SHA-256 of everything that decides the state after a prefix: model, tenant, tokens.
struct PrefixKey {
  std::array<std::uint8_t, 32> bytes{};
  bool operator==(const PrefixKey&) const = default;
};
struct PrefixKeyHash {
  std::size_t operator()(const PrefixKey& key) const {
    std::size_t out = 0;
    std::memcpy(&out, key.bytes.data(), sizeof(out));
    return out;
  }
};

// A hash chain over blocks of 32 tokens. Its start names model and tenant, so equal tokens of two
// tenants have nothing in common.
class PrefixChain {
 public:
  PrefixChain() = default;  // of no use but to be assigned to
  PrefixChain(std::string_view model_digest, std::string_view tenant);

  // Hashes the whole blocks of `tokens` that are new. What came before must be as it was.
  void extend(std::span<const TokenId> tokens);
  int num_blocks() const { return static_cast<int>(keys_.size()) - 1; }
  // Of the first `num_blocks` blocks.
  const PrefixKey& key(int num_blocks) const { return keys_[static_cast<std::size_t>(num_blocks)]; }
  // Of these and the tokens that follow, fewer than a block.
  PrefixKey tail_key(int num_blocks, std::span<const TokenId> tail) const;

 private:
  std::vector<PrefixKey> keys_ = std::vector<PrefixKey>(1);
};

}  // namespace flotilla::state
