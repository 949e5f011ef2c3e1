#include "flotilla/models/gemma4/per_layer_inputs.h"

#include <cmath>
#include <vector>

#include "flotilla/ops/ops.h"

namespace flotilla::models::gemma4 {
using backend::Shape;
using backend::Tensor;

Tensor compute_per_layer_inputs(backend::Backend& backend, const PerLayerInputs& weights,
                                std::span<const TokenId> ids, const Tensor& embedded) {
  const std::int64_t num_tokens = embedded.dim(0);
  const std::int64_t size = weights.size;
  const Tensor tokens =
      ops::embedding(backend, *weights.embedding, ids, std::sqrt(static_cast<float>(size)));
  const Tensor context = ops::linear(backend, *weights.projection, embedded);
  // norm(context / sqrt(hidden)) equals norm(context) with an eps that is larger by the factor
  // hidden.
  const Shape rows{num_tokens * weights.num_layers, size};
  ops::norm_add(backend, context.reshape(rows), weights.norm,
                weights.norm_eps * static_cast<float>(embedded.dim(1)),
                static_cast<float>(std::sqrt(0.5)), tokens.reshape(rows));
  // Layer by layer, so that each layer's rows lie together.
  const Tensor inputs =
      backend.allocate(Shape{weights.num_layers * num_tokens, size}, tensor::DType::kF32);
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(weights.num_layers * num_tokens));
  for (std::int64_t l = 0; l < weights.num_layers; ++l) {
    for (std::int64_t t = 0; t < num_tokens; ++t)
      order.push_back(static_cast<std::int32_t>(t * weights.num_layers + l));
  }
  backend.gather_rows({.source = tokens.reshape(rows), .rows = order, .out = inputs});
  return inputs;
}

}  // namespace flotilla::models::gemma4
