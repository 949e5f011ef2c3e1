// The packed body of Tokens. Integers are LEB128 varints (ids zigzag), doubles 8 bytes
// little-endian, text a length and its bytes. Layout: docs/protocol.md.
#pragma once

#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/protocol/tokens.h"

namespace flotilla::protocol {

Result<std::string> pack(const Tokens& tokens);
Result<Tokens> unpack_tokens(std::string_view body);

}  // namespace flotilla::protocol
