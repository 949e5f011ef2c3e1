#include "flotilla/checkpoint/synth_shape.h"

#include <boost/json.hpp>
#include <cmath>

namespace flotilla::checkpoint {
namespace {

const std::string kPrefix = "language_model.model.";

std::string layer_prefix(std::int64_t layer) {
  return kPrefix + "layers." + std::to_string(layer) + ".";
}

}  // namespace

std::optional<SynthShape> synth_preset(const std::string& name) {
  SynthShape shape;
  if (name == "tiny") return shape;
  shape.vocab = 262144;
  shape.head_dim = 256;
  shape.global_head_dim = 512;
  if (name == "1b") {
    shape.hidden = 1152;
    shape.layers = 24;
    shape.kv_heads = 1;
    shape.mlp = 7680;
    shape.context = 131072;
    shape.window = 512;
    return shape;
  }
  if (name == "4b") {
    shape.hidden = 2560;
    shape.layers = 36;
    shape.heads = 8;
    shape.mlp = 10240;
    shape.context = 131072;
    shape.window = 512;
    return shape;
  }
  if (name == "31b") {
    shape.hidden = 5376;
    shape.layers = 60;
    shape.heads = 32;
    shape.kv_heads = 16;
    shape.global_kv_heads = 4;
    shape.mlp = 21504;
    shape.context = 262144;
    shape.window = 1024;
    return shape;
  }
  return std::nullopt;
}

std::vector<SynthMatrix> matrices(const SynthShape& s) {
  std::vector<SynthMatrix> all = {{kPrefix + "embed_tokens", s.vocab, s.hidden}};
  for (std::int64_t l = 0; l < s.layers; ++l) {
    const std::int64_t dim = s.is_full(l) ? s.global_head_dim : s.head_dim;
    const std::int64_t kv = dim * (s.is_full(l) ? s.global_kv_heads : s.kv_heads);
    const std::string attention = layer_prefix(l) + "self_attn.";
    all.push_back({attention + "q_proj", s.heads * dim, s.hidden});
    all.push_back({attention + "k_proj", kv, s.hidden});
    if (!s.is_full(l)) all.push_back({attention + "v_proj", kv, s.hidden});
    all.push_back({attention + "o_proj", s.hidden, s.heads * dim});
    const std::string mlp = layer_prefix(l) + "mlp.";
    all.push_back({mlp + "gate_proj", s.mlp, s.hidden});
    all.push_back({mlp + "up_proj", s.mlp, s.hidden});
    all.push_back({mlp + "down_proj", s.hidden, s.mlp});
  }
  return all;
}

std::vector<SynthVector> vectors(const SynthShape& s) {
  std::vector<SynthVector> all = {{kPrefix + "norm.weight", s.hidden}};
  for (std::int64_t l = 0; l < s.layers; ++l) {
    const std::int64_t dim = s.is_full(l) ? s.global_head_dim : s.head_dim;
    for (const char* name : {"input_layernorm", "post_attention_layernorm",
                             "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      all.push_back({layer_prefix(l) + name + ".weight", s.hidden});
    }
    // Queries and keys are not divided by the root of the head size: their norms do it, as in
    // trained models.
    const float mean = 1.0f / std::sqrt(std::sqrt(static_cast<float>(dim)));
    for (const char* name : {"q_norm", "k_norm"}) {
      all.push_back({layer_prefix(l) + "self_attn." + name + ".weight", dim, mean});
    }
    all.push_back({layer_prefix(l) + "layer_scalar", 1, 0.9f});
  }
  return all;
}

std::string config_text(const SynthShape& s) {
  namespace bj = boost::json;
  bj::array types;
  for (std::int64_t l = 0; l < s.layers; ++l)
    types.push_back(s.is_full(l) ? "full_attention" : "sliding_attention");
  bj::object text = {{"model_type", "gemma4_text"},
                     {"vocab_size", s.vocab},
                     {"hidden_size", s.hidden},
                     {"intermediate_size", s.mlp},
                     {"num_hidden_layers", s.layers},
                     {"num_attention_heads", s.heads},
                     {"num_key_value_heads", s.kv_heads},
                     {"num_global_key_value_heads", s.global_kv_heads},
                     {"head_dim", s.head_dim},
                     {"global_head_dim", s.global_head_dim},
                     {"attention_k_eq_v", true},
                     {"sliding_window", s.window},
                     {"layer_types", std::move(types)},
                     {"hidden_activation", "gelu_pytorch_tanh"},
                     {"max_position_embeddings", s.context},
                     {"rms_norm_eps", 1e-6},
                     {"final_logit_softcapping", 30.0},
                     {"attention_bias", false},
                     {"tie_word_embeddings", true},
                     {"hidden_size_per_layer_input", 0},
                     {"vocab_size_per_layer_input", s.vocab},
                     {"num_kv_shared_layers", 0},
                     {"use_double_wide_mlp", false},
                     {"enable_moe_block", false},
                     {"dtype", "bfloat16"}};
  text["rope_parameters"] = {
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", 1000000.0},
        {"partial_rotary_factor", 0.25}}}};
  const bj::object quantization = {{"group_size", s.group}, {"bits", s.bits}, {"mode", "affine"}};
  const bj::value config = {{"architectures", {"Gemma4ForConditionalGeneration"}},
                            {"model_type", "gemma4"},
                            {"dtype", "bfloat16"},
                            {"tie_word_embeddings", true},
                            {"text_config", std::move(text)},
                            {"quantization", quantization},
                            {"quantization_config", quantization}};
  return bj::serialize(config) + "\n";
}

std::string find_fault(const SynthShape& s) {
  if (s.heads % s.kv_heads != 0 || s.heads % s.global_kv_heads != 0)
    return "heads must be a multiple of the KV heads";
  for (const SynthMatrix& matrix : matrices(s)) {
    if (matrix.k % s.group != 0) {
      return matrix.module + " has rows of " + std::to_string(matrix.k) +
             ", no multiple of the group size " + std::to_string(s.group);
    }
  }
  return "";
}

}  // namespace flotilla::checkpoint
