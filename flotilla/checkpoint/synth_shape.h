// The sizes of a synthetic Gemma 4 checkpoint and the tensors that follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flotilla::checkpoint {

struct SynthShape {
  std::int64_t hidden = 256;
  std::int64_t layers = 6;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;         // sliding layers
  std::int64_t global_kv_heads = 1;  // full layers, whose values are their keys
  std::int64_t head_dim = 64;
  std::int64_t global_head_dim = 128;
  std::int64_t mlp = 1024;
  std::int64_t vocab = 4096;
  std::int64_t context = 4096;
  std::int64_t window = 128;
  std::int64_t period = 6;  // every period-th layer is a full one, and the last
  int bits = 4;
  int group = 64;

  bool is_full(std::int64_t layer) const {
    return (layer + 1) % period == 0 || layer + 1 == layers;
  }
};

// "tiny", "1b", "4b", "31b"; nullopt for another name.
std::optional<SynthShape> synth_preset(const std::string& name);

struct SynthMatrix {
  std::string module;
  std::int64_t n = 0;
  std::int64_t k = 0;
};
struct SynthVector {
  std::string name;
  std::int64_t n = 0;
  float mean = 1.0f;  // values lie within 10 % of it
};

std::vector<SynthMatrix> matrices(const SynthShape& shape);
std::vector<SynthVector> vectors(const SynthShape& shape);
// Of config.json.
std::string config_text(const SynthShape& shape);
// Why the sizes do not fit together; empty when they do.
std::string find_fault(const SynthShape& shape);

}  // namespace flotilla::checkpoint
