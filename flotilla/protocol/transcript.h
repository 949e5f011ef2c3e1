// What both sides sign, and the plain frames of the handshake. For this module's .cc files only.
#pragma once

#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::protocol {

// Hello as it was on the wire and Offer without its signature, each with its length.
Result<std::string> make_transcript(std::string_view hello_text, Offer offer);

// The bytes to sign: a label for who signs, and the transcript. A signature for one purpose never
// serves another.
inline constexpr std::string_view kCoordinatorLabel = "flotilla link 1 coordinator\n";
inline constexpr std::string_view kNodeLabel = "flotilla link 1 node\n";
inline constexpr std::string_view kInviteLabel = "flotilla link 1 invite\n";
std::string labelled(std::string_view label, std::string_view transcript);

// A frame with the usual header and a plain body.
Result<std::string> plain_frame(const HandshakeMessage& message);
Result<HandshakeMessage> open_plain_frame(std::string_view frame);

}  // namespace flotilla::protocol
