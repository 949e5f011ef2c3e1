// The operations that layers are composed of. Each checks shapes and types once (a mismatch is our
// bug: FLOTILLA_CHECK), allocates its result and calls the backend. Activations are float32 or
// bf16, as the backend has them; the residual stream, norm weights and logits are float32. Names of
// sizes: T tokens, H hidden, N outputs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/backend/backend.h"

namespace flotilla::ops {

using backend::Backend;
using backend::KvGeometry;
using backend::KvRow;
using backend::Matrix;
using backend::Tensor;

// Rows of the table times `scale`: [T, H]. Every id is in [0, table.n()).
Tensor embedding(Backend& backend, const Matrix& table, std::span<const TokenId> ids, float scale,
                 std::span<const std::int32_t> chosen = {});

// x [T, K] times the transposed weight [N, K]: [T, N].
Tensor linear(Backend& backend, const Matrix& weight, const Tensor& x);
// The same without rounding the result, for logits.
// Of weights from Backend::prepare_gated().
Tensor linear_gated(Backend& backend, const Matrix& weight, const Tensor& x);
Tensor linear_f32(Backend& backend, const Matrix& weight, const Tensor& x);
// The same for several weights of equal K, in one go: cheaper than one after another.
std::vector<Tensor> linear_group(Backend& backend, std::span<const Matrix* const> weights,
                                 const Tensor& x);

// Over the last dimension. `weight` [dim] or empty.
Tensor rms_norm(Backend& backend, const Tensor& x, const Tensor& weight, float eps);
void rms_norm_in_place(Backend& backend, const Tensor& x, const Tensor& weight, float eps);
// residual = (residual + rms_norm(x) * weight) * scale; both [T, H].
void norm_add(Backend& backend, const Tensor& x, const Tensor& weight, float eps, float scale,
              const Tensor& residual);
// The same, and rms_norm(residual) * next_weight as the result.
Tensor norm_add_norm(Backend& backend, const Tensor& x, const Tensor& weight, float eps,
                     float scale, const Tensor& residual, const Tensor& next_weight);

// Rotates the heads of x [T, heads, D] in place; D / 2 frequencies.
void rope(Backend& backend, const Tensor& x, std::span<const std::int32_t> positions,
          std::span<const float> inverse_frequencies);

// gelu_tanh(gate) * up, written over gate, which is returned.
Tensor gelu_mul(Backend& backend, const Tensor& gate, const Tensor& up);

// x = cap * tanh(x / cap), in place.
void softcap(Backend& backend, const Tensor& x, float cap);

// k, v [T, kv heads, D] into the pages of their sequences.
void kv_append(Backend& backend, const Tensor& k, const Tensor& v, const KvGeometry& geometry,
               std::span<const KvRow> rows);
// Norms, rotations and the write into pages, in one go: see backend::AttentionInputArgs.
void attention_inputs(Backend& backend, const backend::AttentionInputArgs& args);
// q [T, heads, D] against the pages, which hold the step's own keys already: [T, heads, D]. window
// 0: unlimited.
Tensor attention(Backend& backend, const Tensor& q, const KvGeometry& geometry,
                 std::span<const KvRow> rows, int window, float scale);

}  // namespace flotilla::ops
