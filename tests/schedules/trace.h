// What a request did, as far as the bit-contract speaks of it, and the comparison with its solo
// run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flotilla/engine/text_engine.h"
#include "schedule.h"

namespace flotilla::schedules {

struct Trace {
  struct Position {
    std::int64_t index = 0;  // generation index that the logits decide
    std::uint64_t hash = 0;  // of their bits
  };
  std::vector<Position> logits = {};
  std::vector<TokenId> ids = {};
  std::vector<std::uint64_t> logprobs = {};  // hash of each token's, in order; none of resumed ids
  std::string text = {};
  std::optional<engine::Finish> finish = {};
  int num_finishes = 0;
  bool index_gap = false;       // an event that does not follow the one before
  bool in_failed_step = false;  // the device failed in a step with it
};

std::uint64_t hash_bits(std::span<const float> values);

// Empty when `got` is what the contract demands of `arrival`, given its solo run; else a sentence.
std::string difference(const Arrival& arrival, const Trace& got, const Trace& solo);

}  // namespace flotilla::schedules
