#include "flotilla/layers/rope_attention.h"

#include <array>
#include <utility>

#include "flotilla/ops/ops.h"

namespace flotilla::layers {
using backend::Matrix;
using backend::Shape;
using backend::Tensor;

RopeAttention::RopeAttention(RopeAttentionConfig config, RopeAttentionWeights weights)
    : config_(std::move(config)), weights_(std::move(weights)) {
  FLOTILLA_CHECK(weights_.k != nullptr || weights_.v == nullptr,
                 "attention with values but without keys");
}

Tensor RopeAttention::forward(backend::Backend& backend, const Tensor& x,
                              std::span<const std::int32_t> positions,
                              std::span<const backend::KvRow> rows) const {
  const std::int64_t num_tokens = x.dim(0);
  const std::int64_t dim = config_.kv.head_dim;
  const Shape q_shape{num_tokens, config_.num_heads, dim};
  const Shape kv_shape{num_tokens, config_.kv.num_kv_heads, dim};
  const std::array<const Matrix*, 3> weights = {weights_.q.get(), weights_.k.get(),
                                                weights_.v.get()};
  const std::size_t count = weights_.k == nullptr ? 1 : weights_.v == nullptr ? 2 : 3;
  const std::vector<Tensor> projected =
      ops::linear_group(backend, std::span(weights).first(count), x);

  const Tensor q = projected[0].reshape(q_shape);
  // Without values of their own, values are the raw keys.
  ops::attention_inputs(backend,
                        {.q = q,
                         .k = count > 1 ? projected[1].reshape(kv_shape) : Tensor(),
                         .v = count > 1 ? projected[count - 1].reshape(kv_shape) : Tensor(),
                         .q_norm = weights_.q_norm,
                         .k_norm = weights_.k_norm,
                         .eps = config_.norm_eps,
                         .positions = positions,
                         .inverse_frequencies = config_.inverse_frequencies,
                         .geometry = config_.kv,
                         .rows = rows,
                         .window = config_.window});
  const Tensor mixed = ops::attention(backend, q, config_.kv, rows, config_.window, config_.scale);
  return ops::linear(backend, *weights_.o,
                     mixed.reshape(Shape{num_tokens, config_.num_heads * dim}));
}

}  // namespace flotilla::layers
