// Per-layer embeddings of the E2B and E4B models: a second, wide embedding and a projection of the
// first give every layer its own small input.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "flotilla/backend/backend.h"

namespace flotilla::models::gemma4 {

// In a layer: h += norm(projection(gelu(gate(h)) * input))
struct PerLayerBlock {
  std::unique_ptr<backend::Matrix> gate;        // [per_layer_size, hidden]
  std::unique_ptr<backend::Matrix> projection;  // [hidden, per_layer_size]
  tensor::Tensor norm;                          // [hidden]
};

struct PerLayerInputs {
  std::unique_ptr<backend::Matrix> embedding;   // [per_layer_vocab, num_layers * per_layer_size]
  std::unique_ptr<backend::Matrix> projection;  // [num_layers * per_layer_size, hidden]
  tensor::Tensor norm;                          // [per_layer_size]
  std::int64_t num_layers = 0;
  std::int64_t size = 0;
  float norm_eps = 0;
};

// The inputs of all layers, [num_layers * num_tokens, size], rows of layer l from l * num_tokens.
// `embedded` is the scaled embedding [num_tokens, hidden]; `ids` are looked up in the wide table.
backend::Tensor compute_per_layer_inputs(backend::Backend& backend, const PerLayerInputs& weights,
                                         std::span<const TokenId> ids,
                                         const backend::Tensor& embedded);

}  // namespace flotilla::models::gemma4
