#include "bench/peers/shapes.h"

namespace flotilla::peers {

std::optional<ModelShape> find_shape(const std::string& name) {
  ModelShape s;
  s.name = name;
  if (name == "llama-1b") {
    s.text = "16 layers of 2048 / 8192, 32 heads and 8 KV heads of 64, vocabulary 32000";
    s.hidden = 2048;
    s.mlp = 8192;
    s.layers = 16;
    s.vocab = 32000;
    s.heads = 32;
    s.kv_heads = 8;
    s.head_dim = 64;
    return s;
  }
  s.vocab = 262144;
  s.head_dim = 256;
  s.period = 6;
  s.global_kv_heads = 1;
  s.global_head_dim = 512;
  if (name == "gemma-1b") {
    s.text =
        "24 layers of 1152 / 7680, 4 heads and 1 KV head of 256 (every sixth 512), "
        "vocabulary 262144";
    s.hidden = 1152;
    s.mlp = 7680;
    s.layers = 24;
    s.heads = 4;
    s.kv_heads = 1;
    return s;
  }
  if (name == "gemma-4b") {
    s.text =
        "36 layers of 2560 / 10240, 8 heads and 2 KV heads of 256 (every sixth 1 of 512), "
        "vocabulary 262144";
    s.hidden = 2560;
    s.mlp = 10240;
    s.layers = 36;
    s.heads = 8;
    s.kv_heads = 2;
    return s;
  }
  return std::nullopt;
}

std::vector<LinearGroup> ModelShape::linears() const {
  std::vector<LinearGroup> all;
  for (std::int64_t l = 0; l < layers; ++l) {
    const bool is_global = period > 0 && ((l + 1) % period == 0 || l + 1 == layers);
    const std::int64_t q = heads * (is_global ? global_head_dim : head_dim);
    const std::int64_t kv = is_global ? global_kv_heads * global_head_dim : kv_heads * head_dim;
    // The values of a global layer are its keys.
    all.push_back({hidden, is_global ? std::vector{q, kv} : std::vector{q, kv, kv}});
    all.push_back({q, {hidden}});
    all.push_back({hidden, {mlp, mlp}});
    all.push_back({mlp, {hidden}});
  }
  all.push_back({hidden, {vocab}});
  return all;
}

double ModelShape::num_weights() const {
  double total = 0;
  for (const LinearGroup& group : linears()) {
    for (const std::int64_t n : group.n) total += static_cast<double>(n * group.k);
  }
  return total;
}

}  // namespace flotilla::peers
