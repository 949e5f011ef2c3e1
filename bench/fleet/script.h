// What the mock upstream and the scripted nodes answer: the same text on the same timetable, so
// that what stands in front of them can be compared.
#pragma once

#include <cstdint>
#include <string_view>

namespace flotilla::bench {

// Every token of an answer.
inline constexpr std::string_view kWord = " bench";

struct Script {
  std::int64_t tokens = 16;           // an answer has, unless the request asks for fewer
  std::int64_t tokens_per_frame = 1;  // sent together
  std::int64_t first_ms = 0;          // until the first one
  std::int64_t interval_ms = 0;       // between frames; 0: as fast as they are taken
};

}  // namespace flotilla::bench
