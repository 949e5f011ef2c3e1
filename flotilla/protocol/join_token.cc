#include "flotilla/protocol/join_token.h"

#include <sodium.h>

#include <array>
#include <cstring>

#include "flotilla/base/text.h"
#include "flotilla/json/json.h"
#include "flotilla/protocol/fields_json.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/sodium_init.h"

namespace flotilla::protocol {
namespace {

constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kMaxTokenText = 4096;

std::array<std::uint8_t, 16> checksum(std::string_view payload) {
  init_sodium();
  std::array<std::uint8_t, 16> sum{};
  crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(payload.data()),
                     payload.size(), nullptr, 0);
  return sum;
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

Status check_node_name(std::string_view name) {
  bool good = !name.empty() && name.size() <= 64;
  for (const char c : name) good = good && is_name_character(c);
  if (good && (name.front() == '.' || name.front() == '-' || name.front() == '_')) good = false;
  if (good) return ok_status();
  return Error{ErrorCode::kInvalidArgument,
               "a node name has 1 to 64 of letters, digits, '.', '_' and '-', and starts with a "
               "letter or digit",
               "name"};
}

Result<std::string> to_text(const JoinToken& token) {
  FLOTILLA_TRY_STATUS(check_node_name(token.node));
  FLOTILLA_TRY(std::string payload, write_json(token));
  const auto sum = checksum(payload);
  payload.append(reinterpret_cast<const char*>(sum.data()), kChecksumBytes);
  return to_base64url({reinterpret_cast<const std::uint8_t*>(payload.data()), payload.size()});
}

Result<JoinToken> join_token_from_text(std::string_view text) {
  text = trim_ascii(text);
  std::optional<std::vector<std::uint8_t>> bytes;
  if (text.size() <= kMaxTokenText) bytes = from_base64url(text);
  if (!bytes || bytes->size() <= kChecksumBytes) {
    return link_error(LinkFault::kBadJoinToken, "this is not a join token");
  }
  const std::string_view all(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const std::string_view payload = all.substr(0, all.size() - kChecksumBytes);
  if (std::memcmp(checksum(payload).data(), all.data() + payload.size(), kChecksumBytes) != 0) {
    return link_error(LinkFault::kBadJoinToken,
                      "the join token is damaged or incomplete; copy it again");
  }
  auto value = json::parse(payload, {.max_bytes = kMaxTokenText, .max_depth = 4});
  if (!value.ok()) return link_error(LinkFault::kBadJoinToken, "this is not a join token");
  auto token = read_json<JoinToken>(*value, "join token", ErrorCode::kInvalidArgument);
  if (!token.ok()) return link_error(LinkFault::kBadJoinToken, token.error().message);
  if (token->version != JoinToken::kVersion) {
    return link_error(LinkFault::kBadJoinToken, "the join token has version " +
                                                    std::to_string(token->version) +
                                                    ", this program reads version 1");
  }
  if (Status name = check_node_name(token->node); !name.ok()) {
    return link_error(LinkFault::kBadJoinToken, name.error().message);
  }
  return token;
}

}  // namespace flotilla::protocol
