#include "flotilla/protocol/packed_tokens.h"

#include <bit>
#include <cmath>

#include "flotilla/base/text.h"
#include "flotilla/protocol/link_error.h"

namespace flotilla::protocol {
namespace {

constexpr std::uint8_t kHasCallId = 1;
constexpr std::uint8_t kHasCallName = 2;

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(static_cast<std::uint8_t>(value | 0x80)));
    value >>= 7;
  }
  out.push_back(static_cast<char>(static_cast<std::uint8_t>(value)));
}

void put_id(std::string& out, TokenId id) {
  const auto bits = static_cast<std::uint32_t>(id);
  put_varint(out, (bits << 1) ^ (id < 0 ? 0xFFFF'FFFFu : 0u));
}

void put_double(std::string& out, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (unsigned i = 0; i < 8; ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint8_t>(bits >> (8 * i))));
  }
}

void put_text(std::string& out, std::string_view text) {
  put_varint(out, text.size());
  out.append(text);
}

Error too_large(std::string_view field, std::size_t size, std::size_t limit) {
  return Error{ErrorCode::kTooLarge, "tokens." + std::string(field) + " of " +
                                         std::to_string(size) + " exceeds the limit of " +
                                         std::to_string(limit)};
}

// Reads until the first fault; then every further read gives zero values.
class Reader {
 public:
  explicit Reader(std::string_view body) : rest_(body) {}
  bool ok() const { return fault_.empty(); }
  const std::string& fault() const { return fault_; }
  bool at_end() const { return rest_.empty(); }
  void fail(std::string_view field, std::string_view what) {
    if (!ok()) return;
    fault_ = field;
    fault_ += ' ';
    fault_ += what;
  }

  std::uint64_t varint(std::string_view field, std::uint64_t max) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; ok(); shift += 7) {
      if (rest_.empty()) {
        fail(field, "is cut");
        break;
      }
      const auto byte = static_cast<std::uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      // The tenth byte holds one bit; a last byte of zero would be a second spelling of the same
      // number.
      if (shift == 63 && byte > 1) fail(field, "does not fit 64 bits");
      if (shift > 0 && byte == 0) fail(field, "is not in its shortest form");
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) break;
    }
    if (ok() && value > max) {
      fail(field, "exceeds its limit");
    }
    return ok() ? value : 0;
  }

  TokenId id(std::string_view field) {
    const auto bits = static_cast<std::uint32_t>(varint(field, 0xFFFF'FFFFu));
    return static_cast<TokenId>((bits >> 1) ^ (0u - (bits & 1u)));
  }

  double number(std::string_view field) {
    if (rest_.size() < 8) fail(field, "is cut");
    if (!ok()) return 0;
    std::uint64_t bits = 0;
    for (unsigned i = 0; i < 8; ++i) {
      bits |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(8);
    const auto value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) fail(field, "is not finite");
    return value;
  }

  std::string text(std::string_view field, std::size_t max) {
    const std::uint64_t size = varint(field, max);
    if (size > rest_.size()) fail(field, "is cut");
    if (!ok()) return {};
    std::string out(rest_.substr(0, static_cast<std::size_t>(size)));
    rest_.remove_prefix(static_cast<std::size_t>(size));
    return out;
  }

  std::string utf8(std::string_view field, std::size_t max) {
    std::string out = text(field, max);
    if (!is_valid_utf8(out)) fail(field, "is not UTF-8");
    return out;
  }

 private:
  std::string_view rest_;
  std::string fault_;
};

Status check_limits(const Tokens& tokens) {
  if (tokens.ids.size() > Tokens::kMaxIds)
    return too_large("ids", tokens.ids.size(), Tokens::kMaxIds);
  if (tokens.deltas.size() > Tokens::kMaxDeltas) {
    return too_large("deltas", tokens.deltas.size(), Tokens::kMaxDeltas);
  }
  if (tokens.logprobs.size() > Tokens::kMaxIds) {
    return too_large("logprobs", tokens.logprobs.size(), Tokens::kMaxIds);
  }
  for (const TextDelta& delta : tokens.deltas) {
    if (delta.text.size() > Tokens::kMaxText)
      return too_large("text", delta.text.size(), Tokens::kMaxText);
    if (delta.call_index > Tokens::kMaxCallIndex) {
      return too_large("call_index", delta.call_index, Tokens::kMaxCallIndex);
    }
    if (delta.call_id.size() > Tokens::kMaxCallName ||
        delta.call_name.size() > Tokens::kMaxCallName) {
      return too_large("call_name", std::max(delta.call_id.size(), delta.call_name.size()),
                       Tokens::kMaxCallName);
    }
  }
  return ok_status();
}

Status put_logprob(std::string& out, const TokenLogprob& entry) {
  if (!std::isfinite(entry.logprob)) {
    return Error{ErrorCode::kInternal, "tokens.logprob is not finite"};
  }
  if (entry.bytes.size() > Tokens::kMaxTokenBytes) {
    return too_large("logprob.bytes", entry.bytes.size(), Tokens::kMaxTokenBytes);
  }
  put_id(out, entry.id);
  put_double(out, entry.logprob);
  put_text(out, entry.bytes);
  return ok_status();
}

TokenLogprob read_logprob(Reader& in) {
  TokenLogprob entry;
  entry.id = in.id("logprob.id");
  entry.logprob = in.number("logprob");
  entry.bytes = in.text("logprob.bytes", Tokens::kMaxTokenBytes);
  return entry;
}

TextDelta read_delta(Reader& in) {
  TextDelta delta;
  delta.channel = static_cast<TextChannel>(in.varint("channel", 2));
  delta.text = in.utf8("text", Tokens::kMaxText);
  if (delta.channel != TextChannel::kToolCall) return delta;
  delta.call_index = static_cast<std::uint32_t>(in.varint("call_index", Tokens::kMaxCallIndex));
  const std::uint64_t has = in.varint("call_flags", kHasCallId | kHasCallName);
  if (has & kHasCallId) delta.call_id = in.utf8("call_id", Tokens::kMaxCallName);
  if (has & kHasCallName) delta.call_name = in.utf8("call_name", Tokens::kMaxCallName);
  return delta;
}

}  // namespace

Result<std::string> pack(const Tokens& tokens) {
  FLOTILLA_TRY_STATUS(check_limits(tokens));
  std::string out;
  put_varint(out, tokens.first_index);
  put_varint(out, tokens.ids.size());
  for (const TokenId id : tokens.ids) put_id(out, id);
  put_varint(out, tokens.deltas.size());
  for (const TextDelta& delta : tokens.deltas) {
    put_varint(out, static_cast<std::uint64_t>(delta.channel));
    put_text(out, delta.text);
    if (delta.channel != TextChannel::kToolCall) continue;
    put_varint(out, delta.call_index);
    put_varint(out, (delta.call_id.empty() ? 0u : kHasCallId) |
                        (delta.call_name.empty() ? 0u : kHasCallName));
    if (!delta.call_id.empty()) put_text(out, delta.call_id);
    if (!delta.call_name.empty()) put_text(out, delta.call_name);
  }
  put_varint(out, tokens.logprobs.size());
  for (const TokenLogprob& entry : tokens.logprobs) {
    if (entry.top.size() > Tokens::kMaxTop)
      return too_large("logprob.top", entry.top.size(), Tokens::kMaxTop);
    FLOTILLA_TRY_STATUS(put_logprob(out, entry));
    put_varint(out, entry.top.size());
    for (const TokenLogprob& other : entry.top) FLOTILLA_TRY_STATUS(put_logprob(out, other));
  }
  if (tokens.cached_tokens > 0) put_varint(out, tokens.cached_tokens);
  return out;
}

Result<Tokens> unpack_tokens(std::string_view body) {
  Reader in(body);
  Tokens tokens;
  tokens.first_index = in.varint("first_index", 1u << 30);
  // Lists grow as they are read, never by what a length announces.
  for (std::uint64_t n = in.varint("ids", Tokens::kMaxIds); n > 0 && in.ok(); --n) {
    tokens.ids.push_back(in.id("id"));
  }
  for (std::uint64_t n = in.varint("deltas", Tokens::kMaxDeltas); n > 0 && in.ok(); --n) {
    tokens.deltas.push_back(read_delta(in));
  }
  for (std::uint64_t n = in.varint("logprobs", Tokens::kMaxIds); n > 0 && in.ok(); --n) {
    TokenLogprob entry = read_logprob(in);
    for (std::uint64_t k = in.varint("logprob.top", Tokens::kMaxTop); k > 0 && in.ok(); --k) {
      entry.top.push_back(read_logprob(in));
    }
    tokens.logprobs.push_back(std::move(entry));
  }
  if (!in.at_end() && in.ok()) {
    tokens.cached_tokens = static_cast<std::uint32_t>(in.varint("cached_tokens", 0xFFFF'FFFFu));
  }
  // What follows was added by a later version and is ignored.
  if (!in.ok()) return link_error(LinkFault::kMalformedMessage, "tokens: " + in.fault());
  return tokens;
}

}  // namespace flotilla::protocol
