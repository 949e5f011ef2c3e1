// The text configuration of a Gemma 4 checkpoint, complete: nothing is defaulted that changes the
// computation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/tensor/kv_layout.h"

namespace flotilla::checkpoint {
class Checkpoint;
}

namespace flotilla::models::gemma4 {

enum class LayerKind { kSliding, kFull };

struct RopeSettings {
  double theta = 0;
  double rotary_factor = 1;
  double factor = 1;
};

struct Config {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;         // sliding layers, and full layers without shared K and V
  std::int64_t num_global_kv_heads = 0;  // full layers
  std::int64_t head_dim = 0;             // sliding layers
  std::int64_t global_head_dim = 0;      // full layers
  std::int64_t sliding_window = 0;
  std::int64_t context_length = 0;
  std::vector<LayerKind> layers;
  float rms_norm_eps = 0;
  float embedding_scale = 0;
  std::optional<float> softcap;
  RopeSettings sliding_rope;
  RopeSettings full_rope;
  bool values_from_keys = false;  // in full layers
  bool tied_head = true;
  std::int64_t per_layer_size = 0;  // of the per-layer embeddings; 0: none
  std::int64_t per_layer_vocab = 0;
  std::int64_t num_shared_layers =
      0;  // the last layers, which read the keys and values of earlier ones
  bool double_wide_shared_mlp = false;
  std::vector<TokenId>
      placeholder_ids;  // of pictures, sound and video: the padding id in the per-layer table
  TokenId padding_id = 0;
  int kv_element_bytes = 4;  // as the backend keeps keys and values

  std::int64_t num_layers() const { return static_cast<std::int64_t>(layers.size()); }
  tensor::KvGeometry kv(std::int64_t layer) const;
  std::int64_t mlp_size(std::int64_t layer) const;
  bool shares_kv(std::int64_t layer) const { return layer >= num_layers() - num_shared_layers; }
  // The layer whose keys and values `layer` uses: itself, or the last own layer of the same kind.
  std::int64_t kv_layer(std::int64_t layer) const;
};

// Reads config.json of the checkpoint (text_config, or the top of a text-only export). Missing or
// impossible fields are kInvalidArgument; variants that are not implemented are kUnsupported and
// name the field. `prefix` is that of the text tensors: their presence tells a tied head from a
// separate one where the configuration does not.
Result<Config> read_config(const checkpoint::Checkpoint& checkpoint, const std::string& prefix);

// The full name of the separate output matrix, where there is one.
std::string head_module(const checkpoint::Checkpoint& checkpoint, const std::string& prefix);

}  // namespace flotilla::models::gemma4
