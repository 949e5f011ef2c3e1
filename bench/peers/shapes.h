// The linears of a model, layer by layer: what both sides compute.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flotilla::peers {

// Weights [n, k] that multiply the same x: q, k and v; gate and up.
struct LinearGroup {
  std::int64_t k = 0;
  std::vector<std::int64_t> n;
};

struct ModelShape {
  std::string name;
  std::string text;  // for people
  std::int64_t hidden = 0, mlp = 0, layers = 0, vocab = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t period = 0;  // Gemma 4: every period-th layer and the last has global heads; 0: none
  std::int64_t global_kv_heads = 0, global_head_dim = 0;

  std::vector<LinearGroup> linears() const;  // in the order of a forward pass, the head last
  double num_weights() const;
};

// "llama-1b", "gemma-1b", "gemma-4b".
std::optional<ModelShape> find_shape(const std::string& name);

}  // namespace flotilla::peers
