// Digests of token ids and of text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "flotilla/base/ids.h"

namespace flotilla::engine {

// Hex SHA-256 of the ids as little-endian int32: what two nodes compare before a stream is resumed.
std::string digest_of_ids(std::span<const TokenId> ids);
// Hex SHA-256 of the bytes.
std::string digest_of_text(std::string_view text);

}  // namespace flotilla::engine
