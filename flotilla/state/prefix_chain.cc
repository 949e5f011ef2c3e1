#include "flotilla/state/prefix_chain.h"

#include <openssl/sha.h>

#include <string>

#include "flotilla/base/check.h"
#include "flotilla/tensor/kv_layout.h"

namespace flotilla::state {
namespace {

constexpr std::size_t kBlock = tensor::kKvBlock;

PrefixKey sha256(const void* data, std::size_t bytes) {
  PrefixKey key;
  SHA256(static_cast<const unsigned char*>(data), bytes, key.bytes.data());
  return key;
}

// The keys never leave the process: the ids are hashed as they lie in memory.
PrefixKey next_key(const PrefixKey& previous, std::span<const TokenId> tokens) {
  struct {
    PrefixKey previous;
    std::array<TokenId, kBlock> tokens{};
    std::uint64_t count = 0;
  } input;
  input.previous = previous;
  std::memcpy(input.tokens.data(), tokens.data(), tokens.size_bytes());
  input.count = tokens.size();
  return sha256(&input, sizeof(input));
}

}  // namespace

PrefixChain::PrefixChain(std::string_view model_digest, std::string_view tenant) {
  std::string start = "flotilla prefix\n";
  start += std::to_string(model_digest.size()) + ":" + std::string(model_digest) + "\n";
  start += std::to_string(tenant.size()) + ":" + std::string(tenant);
  keys_.front() = sha256(start.data(), start.size());
}

void PrefixChain::extend(std::span<const TokenId> tokens) {
  while ((static_cast<std::size_t>(num_blocks()) + 1) * kBlock <= tokens.size()) {
    const std::size_t begin = static_cast<std::size_t>(num_blocks()) * kBlock;
    keys_.push_back(next_key(keys_.back(), tokens.subspan(begin, kBlock)));
  }
}

PrefixKey PrefixChain::tail_key(int num_blocks, std::span<const TokenId> tail) const {
  FLOTILLA_CHECK(!tail.empty() && tail.size() < kBlock, "a tail is part of a block");
  return next_key(key(num_blocks), tail);
}

}  // namespace flotilla::state
