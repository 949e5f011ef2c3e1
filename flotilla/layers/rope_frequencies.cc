#include "flotilla/layers/rope_frequencies.h"

#include <cmath>
#include <cstddef>

namespace flotilla::layers {

std::vector<float> rope_frequencies(int head_dim, double theta) {
  return proportional_rope_frequencies(head_dim, theta, 1.0, 1.0);
}

std::vector<float> proportional_rope_frequencies(int head_dim, double theta, double rotary_factor,
                                                 double factor) {
  std::vector<float> frequencies(static_cast<std::size_t>(head_dim / 2), 0.0f);
  const int live = static_cast<int>(rotary_factor * head_dim) / 2;
  for (int i = 0; i < live; ++i) {
    // In double, rounded once: the same value from every C library.
    frequencies[static_cast<std::size_t>(i)] =
        static_cast<float>(std::pow(theta, -2.0 * i / head_dim) / factor);
  }
  return frequencies;
}

}  // namespace flotilla::layers
