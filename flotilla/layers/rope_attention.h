// Attention with rotary positions, normed queries, keys and values, and grouped heads, over paged
// keys and values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "flotilla/backend/backend.h"

namespace flotilla::layers {

struct RopeAttentionConfig {
  int num_heads = 0;
  backend::KvGeometry kv;  // num_kv_heads and head_dim
  int window = 0;          // 0: unlimited
  float scale = 1.0f;      // of q . k
  float norm_eps = 0;
  std::vector<float> inverse_frequencies;  // [head_dim / 2]
};

struct RopeAttentionWeights {
  std::unique_ptr<backend::Matrix> q, o;
  // Both empty: the layer reads the keys and values of another layer. Only v empty: the values are
  // the raw keys.
  std::unique_ptr<backend::Matrix> k, v;
  backend::Tensor q_norm, k_norm;  // [head_dim] float32, uploaded
};

// Const after construction.
class RopeAttention {
 public:
  RopeAttention(RopeAttentionConfig config, RopeAttentionWeights weights);
  // x [num_tokens, hidden]; the result has the same shape. `rows` cover the tokens and hold this
  // layer's pages, or those of the layer it reads.
  backend::Tensor forward(backend::Backend& backend, const backend::Tensor& x,
                          std::span<const std::int32_t> positions,
                          std::span<const backend::KvRow> rows) const;

 private:
  RopeAttentionConfig config_;
  RopeAttentionWeights weights_;
};

}  // namespace flotilla::layers
