#include "flotilla/layers/rope_attention.h"

#include <array>
#include <utility>

namespace flotilla::layers {
using backend::Matrix;
using backend::Shape;
using backend::Tensor;

RopeAttention::RopeAttention(RopeAttentionConfig config, RopeAttentionWeights weights)
    : config_(std::move(config)), weights_(std::move(weights)) {
  FLOTILLA_CHECK(weights_.k != nullptr || weights_.v == nullptr,
                 "attention with values but without keys");
}

void RopeAttention::project(backend::Backend& backend, const Tensor& x, const Tensor& q,
                            const Tensor& k, const Tensor& v) const {
  const std::array<const Matrix*, 3> weights = {weights_.q.get(), weights_.k.get(),
                                                weights_.v.get()};
  const std::array<Tensor, 3> outs = {q, k, v};
  const std::size_t count = weights_.k == nullptr ? 1 : weights_.v == nullptr ? 2 : 3;
  backend.linear_group(
      {.weights = std::span(weights).first(count), .x = x, .outs = std::span(outs).first(count)});
}

void RopeAttention::forward(backend::Backend& backend, AttentionScratch& scratch, const Tensor& x,
                            std::span<const std::int32_t> positions,
                            std::span<const backend::KvRow> rows, const Tensor& out) const {
  const std::int64_t num_tokens = x.dim(0);
  const std::int64_t num_heads = config_.num_heads;
  const std::int64_t num_kv_heads = config_.kv.num_kv_heads;
  const std::int64_t dim = config_.kv.head_dim;
  const Shape q_shape{num_tokens, num_heads, dim};
  const Shape kv_shape{num_tokens, num_kv_heads, dim};
  const Shape kv_rows{num_tokens * num_kv_heads, dim};
  const Tensor q = scratch.q.view(backend, num_tokens, num_heads * dim);
  const bool own_kv = weights_.k != nullptr;
  const Tensor k = own_kv ? scratch.k.view(backend, num_tokens, num_kv_heads * dim) : Tensor();
  const Tensor v = own_kv ? scratch.v.view(backend, num_tokens, num_kv_heads * dim) : Tensor();
  project(backend, x, q, k, v);

  const Tensor q_heads = q.reshape(Shape{num_tokens * num_heads, dim});
  backend.rms_norm(
      {.x = q_heads, .weight = weights_.q_norm, .eps = config_.norm_eps, .out = q_heads});
  backend.rope({.x = q.reshape(q_shape),
                .positions = positions,
                .inverse_frequencies = config_.inverse_frequencies});
  if (own_kv) {
    // Values first: where they come from the keys, the raw keys are meant, before their norm and
    // rotation.
    const Tensor values = (weights_.v != nullptr ? v : k).reshape(kv_rows);
    backend.rms_norm(
        {.x = values, .weight = {}, .eps = config_.norm_eps, .out = v.reshape(kv_rows)});
    const Tensor keys = k.reshape(kv_rows);
    backend.rms_norm({.x = keys, .weight = weights_.k_norm, .eps = config_.norm_eps, .out = keys});
    backend.rope({.x = k.reshape(kv_shape),
                  .positions = positions,
                  .inverse_frequencies = config_.inverse_frequencies});
    backend.kv_append(
        {.k = k.reshape(kv_shape), .v = v.reshape(kv_shape), .geometry = config_.kv, .rows = rows});
  }
  const Tensor mixed = scratch.mixed.view(backend, num_tokens, num_heads * dim);
  backend.attention({.q = q.reshape(q_shape),
                     .geometry = config_.kv,
                     .rows = rows,
                     .window = config_.window,
                     .scale = config_.scale,
                     .out = mixed.reshape(q_shape)});
  backend.linear({.weight = weights_.o.get(), .x = mixed, .out = out});
}

}  // namespace flotilla::layers
