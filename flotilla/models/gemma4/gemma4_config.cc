#include "flotilla/models/gemma4/gemma4_config.h"

#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <string_view>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/json/json.h"
#include "flotilla/log/log.h"

namespace flotilla::models::gemma4 {
namespace bj = boost::json;
namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}
Error unsupported(std::string message) {
  return Error{ErrorCode::kUnsupported, std::move(message)};
}

// Present but null counts as present: null is how configurations say "none".
bool has_key(const bj::value& object, std::string_view key) {
  return object.is_object() && object.get_object().contains(key);
}

Result<std::vector<LayerKind>> read_layer_kinds(const bj::value& text, const std::string& where) {
  FLOTILLA_TRY(const std::int64_t num_layers,
               json::require_int(text, "num_hidden_layers", 1, 1024, where));
  const std::string path = json::join_path(where, "layer_types");
  const bj::value* list = json::find(text, "layer_types");
  if (list == nullptr || !list->is_array()) return invalid("'" + path + "' is missing or no list");
  if (static_cast<std::int64_t>(list->get_array().size()) != num_layers) {
    return invalid("'" + path + "' has " + std::to_string(list->get_array().size()) +
                   " entries for " + std::to_string(num_layers) + " layers");
  }
  std::vector<LayerKind> kinds;
  for (const bj::value& item : list->get_array()) {
    const std::string name =
        item.is_string() ? std::string(item.get_string().c_str()) : std::string();
    const bool full = name == "full_attention";
    if (!full && name != "sliding_attention") {
      return unsupported("'" + path +
                         "' has an entry that is neither sliding_attention nor full_attention");
    }
    kinds.push_back(full ? LayerKind::kFull : LayerKind::kSliding);
  }
  // The reference implementation makes the last layer a full one whatever the list says.
  kinds.back() = LayerKind::kFull;
  return kinds;
}

Result<RopeSettings> read_rope(const bj::value& text, std::string_view kind,
                               std::string_view expected_type, const std::string& where) {
  const std::string outer = json::join_path(where, "rope_parameters");
  const bj::value* parameters = json::find(text, "rope_parameters");
  const bj::value* block = parameters == nullptr ? nullptr : json::find(*parameters, kind);
  const std::string path = json::join_path(outer, kind);
  if (block == nullptr) return invalid("'" + path + "' is missing");
  FLOTILLA_TRY(const std::optional<std::string> type, json::get_string(*block, "rope_type", path));
  if (!type || *type != expected_type) {
    return unsupported("'" + path + ".rope_type' must be '" + std::string(expected_type) + "'");
  }
  RopeSettings rope;
  FLOTILLA_TRY(rope.theta, json::require_double(*block, "rope_theta", 1, 1e12, path));
  if (expected_type == "proportional") {
    FLOTILLA_TRY(rope.rotary_factor,
                 json::require_double(*block, "partial_rotary_factor", 0, 1, path));
    FLOTILLA_TRY(const std::optional<double> factor,
                 json::get_double(*block, "factor", 1e-6, 1e6, path));
    rope.factor = factor.value_or(1.0);
  }
  return rope;
}

// The type in which the reference keeps its constants: bf16 unless the checkpoint says float32.
Result<bool> rounds_constants(const bj::value& config, const bj::value& text,
                              const std::string& where) {
  for (const bj::value* object : {&text, &config}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      FLOTILLA_TRY(const std::optional<std::string> dtype, json::get_string(*object, key, where));
      if (!dtype) continue;
      if (*dtype == "float32") return false;
      if (*dtype == "bfloat16" || *dtype == "float16") return true;
      return unsupported(std::string("'") + key + "' '" + *dtype +
                         "' is none of bfloat16, float16, float32");
    }
  }
  return true;
}

Status read_sizes(const bj::value& text, const std::string& where, Config& config) {
  constexpr std::int64_t kMaxSize = 1 << 20;
  FLOTILLA_TRY(config.vocab_size, json::require_int(text, "vocab_size", 1, 1 << 24, where));
  FLOTILLA_TRY(config.hidden_size, json::require_int(text, "hidden_size", 1, kMaxSize, where));
  FLOTILLA_TRY(config.intermediate_size,
               json::require_int(text, "intermediate_size", 1, kMaxSize, where));
  FLOTILLA_TRY(config.num_heads, json::require_int(text, "num_attention_heads", 1, 4096, where));
  FLOTILLA_TRY(config.num_kv_heads, json::require_int(text, "num_key_value_heads", 1, 4096, where));
  FLOTILLA_TRY(config.head_dim, json::require_int(text, "head_dim", 2, 4096, where));
  FLOTILLA_TRY(config.global_head_dim, json::require_int(text, "global_head_dim", 2, 4096, where));
  FLOTILLA_TRY(config.sliding_window, json::require_int(text, "sliding_window", 1, 1 << 30, where));
  FLOTILLA_TRY(config.context_length,
               json::require_int(text, "max_position_embeddings", 1, 1 << 30, where));
  FLOTILLA_TRY(const double eps, json::require_double(text, "rms_norm_eps", 0, 1, where));
  config.rms_norm_eps = static_cast<float>(eps);
  FLOTILLA_TRY(config.values_from_keys, json::require_bool(text, "attention_k_eq_v", where));
  config.num_global_kv_heads = config.num_kv_heads;
  if (config.values_from_keys) {
    if (!has_key(text, "num_global_key_value_heads")) {
      return invalid("'" + json::join_path(where, "num_global_key_value_heads") + "' is missing");
    }
    FLOTILLA_TRY(const std::optional<std::int64_t> heads,
                 json::get_int(text, "num_global_key_value_heads", 1, 4096, where));
    config.num_global_kv_heads = heads.value_or(config.num_kv_heads);
  }
  if (config.head_dim % 2 != 0 || config.global_head_dim % 2 != 0) {
    return invalid("'" + json::join_path(where, "head_dim") +
                   "' and 'global_head_dim' must be even");
  }
  for (const std::int64_t kv_heads : {config.num_kv_heads, config.num_global_kv_heads}) {
    if (config.num_heads % kv_heads != 0) {
      return invalid("'" + json::join_path(where, "num_attention_heads") + "' " +
                     std::to_string(config.num_heads) + " is no multiple of " +
                     std::to_string(kv_heads) + " key-value heads");
    }
  }
  return ok_status();
}

Status read_variants(const bj::value& text, const std::string& where, Config& config) {
  FLOTILLA_TRY(const bool moe, json::require_bool(text, "enable_moe_block", where));
  if (moe)
    return unsupported("'" + json::join_path(where, "enable_moe_block") +
                       "' true is not supported yet");
  FLOTILLA_TRY(const std::optional<bool> bias, json::get_bool(text, "attention_bias", where));
  if (bias.value_or(false)) {
    return unsupported("'" + json::join_path(where, "attention_bias") + "' true is not supported");
  }
  // Compared as JSON: GCC 12 warns wrongly about the comparison of a moved std::string.
  const bj::value* activation = json::find(text, "hidden_activation");
  if (activation == nullptr || *activation != "gelu_pytorch_tanh") {
    return unsupported("'" + json::join_path(where, "hidden_activation") +
                       "' must be 'gelu_pytorch_tanh'");
  }
  FLOTILLA_TRY(config.num_shared_layers,
               json::require_int(text, "num_kv_shared_layers", 0, config.num_layers() - 1, where));
  if (config.num_shared_layers > 0) {
    FLOTILLA_TRY(config.double_wide_shared_mlp,
                 json::require_bool(text, "use_double_wide_mlp", where));
    for (std::int64_t l = 0; l < config.num_layers(); ++l) {
      if (config.kv_layer(l) < 0) {
        return invalid("'" + json::join_path(where, "num_kv_shared_layers") + "' leaves layer " +
                       std::to_string(l) + " no earlier layer of its kind to share with");
      }
    }
  }
  FLOTILLA_TRY(config.per_layer_size,
               json::require_int(text, "hidden_size_per_layer_input", 0, 1 << 16, where));
  if (config.per_layer_size > 0) {
    FLOTILLA_TRY(config.per_layer_vocab,
                 json::require_int(text, "vocab_size_per_layer_input", 1, 1 << 24, where));
  }
  if (!has_key(text, "final_logit_softcapping")) {
    return invalid("'" + json::join_path(where, "final_logit_softcapping") + "' is missing");
  }
  FLOTILLA_TRY(const std::optional<double> cap,
               json::get_double(text, "final_logit_softcapping", 1e-3, 1e6, where));
  if (cap) config.softcap = static_cast<float>(*cap);
  return ok_status();
}

Status read_ids(const bj::value& config_json, const bj::value& text, const std::string& where,
                Config& config) {
  constexpr std::int64_t kMaxId = std::numeric_limits<TokenId>::max();
  FLOTILLA_TRY(const std::optional<std::int64_t> pad,
               json::get_int(text, "pad_token_id", -1, kMaxId, where));
  config.padding_id = static_cast<TokenId>(std::max<std::int64_t>(pad.value_or(0), 0));
  for (const char* key : {"image_token_id", "audio_token_id", "video_token_id"}) {
    FLOTILLA_TRY(const std::optional<std::int64_t> id, json::get_int(config_json, key, 0, kMaxId));
    if (id) config.placeholder_ids.push_back(static_cast<TokenId>(*id));
  }
  return ok_status();
}

Result<Config> read(const checkpoint::Checkpoint& checkpoint, const std::string& prefix) {
  const bj::value& config_json = checkpoint.config();
  const bj::value* text_block = json::find(config_json, "text_config");
  const bj::value& text = text_block != nullptr ? *text_block : config_json;
  const std::string where = text_block != nullptr ? "text_config" : "";
  Config config;
  FLOTILLA_TRY_STATUS(read_sizes(text, where, config));
  FLOTILLA_TRY(config.layers, read_layer_kinds(text, where));
  FLOTILLA_TRY_STATUS(read_variants(text, where, config));
  FLOTILLA_TRY_STATUS(read_ids(config_json, text, where, config));
  FLOTILLA_TRY(config.sliding_rope, read_rope(text, "sliding_attention", "default", where));
  FLOTILLA_TRY(config.full_rope, read_rope(text, "full_attention", "proportional", where));

  FLOTILLA_TRY(const bool rounds, rounds_constants(config_json, text, where));
  const float scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  config.embedding_scale = rounds ? tensor::bf16_to_f32(tensor::f32_to_bf16(scale)) : scale;

  FLOTILLA_TRY(std::optional<bool> tied, json::get_bool(text, "tie_word_embeddings", where));
  if (!tied) {
    FLOTILLA_TRY(tied, json::get_bool(config_json, "tie_word_embeddings"));
  }
  config.tied_head = tied.value_or(!checkpoint.has_matrix(head_module(checkpoint, prefix)));
  return config;
}

}  // namespace

tensor::KvGeometry Config::kv(std::int64_t layer) const {
  const bool full = layers[static_cast<std::size_t>(layer)] == LayerKind::kFull;
  return {static_cast<int>(full ? num_global_kv_heads : num_kv_heads),
          static_cast<int>(full ? global_head_dim : head_dim), kv_element_bytes};
}

std::int64_t Config::mlp_size(std::int64_t layer) const {
  return shares_kv(layer) && double_wide_shared_mlp ? 2 * intermediate_size : intermediate_size;
}

std::int64_t Config::kv_layer(std::int64_t layer) const {
  if (!shares_kv(layer)) return layer;
  std::int64_t donor = num_layers() - num_shared_layers - 1;
  while (donor >= 0 &&
         layers[static_cast<std::size_t>(donor)] != layers[static_cast<std::size_t>(layer)])
    --donor;
  return donor;
}

std::string head_module(const checkpoint::Checkpoint& checkpoint, const std::string& prefix) {
  // Beside the text model in every layout: "language_model.lm_head", "lm_head", ...
  for (const std::string& candidate :
       {prefix + "lm_head", std::string("language_model.lm_head"), std::string("model.lm_head")}) {
    if (checkpoint.has_matrix(candidate)) return candidate;
  }
  return "lm_head";
}

Result<Config> read_config(const checkpoint::Checkpoint& checkpoint, const std::string& prefix) {
  auto config = read(checkpoint, prefix);
  if (!config.ok()) {
    return Error{config.error().code,
                 checkpoint.folder() + "/config.json: " + config.error().message,
                 config.error().param};
  }
  return config;
}

}  // namespace flotilla::models::gemma4
