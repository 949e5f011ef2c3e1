// Arrivals of requests: read from a file or made from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::bench {

struct Arrival {
  double at = 0;  // seconds
  std::uint64_t conversation = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_prefix = 0;  // of these, the ones that the turn before has in common
  std::int64_t output_tokens = 0;
  std::size_t turn = 0;  // counted from 0; filled in
};

// Conversations begin at random and go on: each prompt is the one before, its answer, and more.
struct MadeTrace {
  double seconds = 600;
  double conversations_per_s = 1.5;
  double turns = 6;     // on average
  double think_s = 15;  // between an answer's start and the next question, on average
  std::int64_t first_prompt = 1'500;
  std::int64_t more_prompt = 400;
  std::int64_t output = 250;
  std::uint64_t seed = 1;
};

// CSV with a header line, or one JSON object a line; columns, in this order in CSV: time,
// conversation, prompt_tokens, cached_prefix, output_tokens. Sorted by time.
Result<std::vector<Arrival>> read_trace(const std::string& path);
std::vector<Arrival> make_trace(const MadeTrace& made);

}  // namespace flotilla::bench
