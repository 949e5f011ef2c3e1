// The frame that carries generated tokens: the only one with a packed body, because there is one
// per step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"

namespace flotilla::protocol {

enum class TextChannel : std::uint8_t { kContent = 0, kReasoning = 1, kToolCall = 2 };

// Text for one channel, whole UTF-8 characters. For kToolCall: the next part of the arguments of
// call `call_index`; `call_id` and `call_name` come with the first piece of a call and are empty
// later.
struct TextDelta {
  TextChannel channel = TextChannel::kContent;
  std::string text = {};
  std::uint32_t call_index = 0;
  std::string call_id = {};
  std::string call_name = {};
  bool operator==(const TextDelta&) const = default;
};

struct TokenLogprob {
  TokenId id = 0;
  double logprob = 0;      // natural logarithm, finite
  std::string bytes = {};  // of the token; any bytes
  std::vector<TokenLogprob> top = {};
  bool operator==(const TokenLogprob&) const = default;
};

// Node to coordinator: one step of a started attempt. ids[i] has generation index first_index + i;
// frames of an attempt follow each other without gap. `ids` may be empty when only text was
// released, and text lags behind ids.
struct Tokens {
  static constexpr std::string_view kType = "tokens";
  static constexpr std::uint8_t kKind = 36;
  static constexpr std::size_t kMaxBytes = 4u << 20;
  static constexpr std::size_t kMaxIds = 65'536;
  static constexpr std::size_t kMaxDeltas = 4'096;
  static constexpr std::size_t kMaxText = 1u << 20;
  static constexpr std::size_t kMaxCallName = 512;
  static constexpr std::size_t kMaxTop = 64;
  static constexpr std::size_t kMaxTokenBytes = 1'024;
  static constexpr std::uint32_t kMaxCallIndex = 1'023;
  std::uint64_t first_index = 0;
  std::vector<TokenId> ids = {};
  std::vector<TextDelta> deltas = {};
  std::vector<TokenLogprob> logprobs = {};  // none, or one per id
  std::uint32_t cached_tokens = 0;          // of the prompt; in the first frame of an attempt
  bool operator==(const Tokens&) const = default;
};

}  // namespace flotilla::protocol
