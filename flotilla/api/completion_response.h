// What a text completion looks like on the wire: the whole answer, and the chunks of a stream.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/api/chat_response.h"

namespace flotilla::api {

struct CompletionPiece {
  int index = 0;
  std::string_view text = {};
  std::span<const TokenLogprob> logprobs = {};
  std::span<const std::int32_t> token_ids = {};
  // Characters of the answer before the first of `logprobs`.
  std::int64_t text_offset = 0;
  std::optional<FinishReason> finish = {};
};

// The body of an answer that is not streamed.
std::string render_completion(const ResponseHead& head, std::span<const CompletionPiece> choices,
                              const Usage& usage);
// One frame of a stream.
void append_completion_chunk(std::string& out, const ResponseHead& head,
                             const CompletionPiece& piece);
// After the last choice, only with include_usage.
void append_completion_usage(std::string& out, const ResponseHead& head, const Usage& usage);

// Characters that begin in `bytes`: what offsets count.
std::int64_t count_characters(std::string_view bytes);

}  // namespace flotilla::api
