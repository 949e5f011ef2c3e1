#include "flotilla/backend/shortlist.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace flotilla::backend {

Shortlist define_shortlist(std::span<const float> logits, const ShortlistRow& row) {
  if (!std::all_of(logits.begin(), logits.end(), [](float v) { return std::isfinite(v); })) {
    return {.is_finite = false, .first = {}};
  }
  constexpr float kTakenOut = -std::numeric_limits<float>::infinity();
  std::vector<float> values(logits.begin(), logits.end());
  for (const LogitEdit& edit : row.edits) {
    float& value = values[static_cast<std::size_t>(edit.id)];
    value += edit.bias;
    value = value > 0 ? value / edit.repetition : value * edit.repetition;
    value -= edit.penalty;
    if (edit.taken_out != 0) value = kTakenOut;
  }
  const auto allows = [&](std::size_t id) {
    if (row.allowed.empty()) return true;
    return id / 32 < row.allowed.size() && (row.allowed[id / 32] >> (id % 32) & 1u) != 0;
  };
  Shortlist out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != kTakenOut && allows(i)) {
      out.first.push_back({values[i], static_cast<TokenId>(i)});
    }
  }
  const auto kept = std::min(out.first.size(), static_cast<std::size_t>(row.count));
  const auto end = out.first.begin() + static_cast<std::ptrdiff_t>(kept);
  std::partial_sort(out.first.begin(), end, out.first.end(), precedes);
  out.first.resize(kept);
  return out;
}

}  // namespace flotilla::backend
