// Inverse frequencies of rotary position embeddings, as backend::RopeArgs takes them.
#pragma once

#include <vector>

namespace flotilla::layers {

// theta^(-2i / head_dim) for i < head_dim / 2.
std::vector<float> rope_frequencies(int head_dim, double theta);

// "Proportional": the first int(rotary_factor * head_dim) / 2 pairs rotate, with the exponents of
// the full head; the others do not. Every frequency is divided by `factor`.
std::vector<float> proportional_rope_frequencies(int head_dim, double theta, double rotary_factor,
                                                 double factor);

}  // namespace flotilla::layers
