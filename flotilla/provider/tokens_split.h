// Cuts output into frames within the limits of the wire.
#pragma once

#include <vector>

#include "flotilla/protocol/tokens.h"

namespace flotilla::provider {

// Frames in order whose ids, text and logprobs join to those of `tokens`; none for an empty one.
// Text is cut between characters. Ordinary steps give one frame.
std::vector<protocol::Tokens> split_to_limits(protocol::Tokens tokens);

}  // namespace flotilla::provider
