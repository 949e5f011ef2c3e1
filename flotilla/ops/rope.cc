#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {

void rope(Backend& backend, const Tensor& x, std::span<const std::int32_t> positions,
          std::span<const float> inverse_frequencies) {
  check_values(backend, x, 3, "rope: input");
  FLOTILLA_CHECK(static_cast<std::int64_t>(positions.size()) == x.dim(0),
                 "rope: one position for each token");
  FLOTILLA_CHECK(static_cast<std::int64_t>(inverse_frequencies.size()) * 2 == x.dim(2),
                 "rope: one frequency for each pair of channels");
  constexpr std::int32_t kMaxPosition = 1 << 20;  // what the range reduction of the angles covers
  for (const std::int32_t p : positions) {
    FLOTILLA_CHECK(p >= 0 && p <= kMaxPosition, "rope: position out of range");
  }
  backend.rope({.x = x, .positions = positions, .inverse_frequencies = inverse_frequencies});
}

}  // namespace flotilla::ops
