// Text with its provenance. Template literals and the declared bos/eos tokens are trusted; anything
// that came from messages or tools is not. Added tokens marked special match only inside trusted
// spans, so text typed by a user never becomes a control token.
#pragma once

#include <string>
#include <vector>

namespace flotilla {

struct TextSpan {
  std::string text;
  bool trusted = false;
  bool operator==(const TextSpan&) const = default;
};
// Neighbours of equal trust are merged by producers.
using SpanText = std::vector<TextSpan>;

}  // namespace flotilla
