// The first candidates of rows of logits, found where the logits are: what sampling needs of a row
// when it looks at a few tokens only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/base/ids.h"

namespace flotilla::backend {

inline constexpr int kMostShortlisted = 256;

// What is done to one logit first, in this order and in float32: `bias` is added; when it is
// positive it is divided by `repetition`, else multiplied; `penalty` is subtracted. One that is
// taken out is no candidate. The device reads this struct.
struct LogitEdit {
  TokenId id = 0;
  float bias = 0;
  float repetition = 1;
  float penalty = 0;
  std::int32_t taken_out = 0;
};

struct Candidate {
  float value;
  TokenId id;
};
// The order of candidates.
inline bool precedes(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

struct ShortlistRow {
  std::int32_t row = 0;                         // of the logits
  int count = 1;                                // 1 to kMostShortlisted
  std::span<const LogitEdit> edits = {};        // of different tokens
  std::span<const std::uint32_t> allowed = {};  // one bit per token, 32 in a word; empty: all
};

struct Shortlist {
  bool is_finite = true;              // every logit was, before its edit
  std::vector<Candidate> first = {};  // at most `count`, in order; empty when a logit is not finite
};

// The definition.
Shortlist define_shortlist(std::span<const float> logits, const ShortlistRow& row);

}  // namespace flotilla::backend
