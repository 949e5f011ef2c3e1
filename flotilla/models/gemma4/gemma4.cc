// Takes a Gemma 4 checkpoint apart.
#include "flotilla/models/gemma4/gemma4.h"

#include <string>
#include <utility>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/generation_defaults.h"
#include "flotilla/layers/rope_frequencies.h"
#include "flotilla/log/log.h"
#include "flotilla/models/gemma4/gemma4_model.h"
#include "flotilla/models/weight_loader.h"

namespace flotilla::models::gemma4 {
namespace {

Result<layers::RopeAttention> load_attention(WeightLoader& loader, const Config& config,
                                             std::int64_t l) {
  const std::string base = "layers." + std::to_string(l) + ".self_attn.";
  const bool full = config.layers[static_cast<std::size_t>(l)] == LayerKind::kFull;
  layers::RopeAttentionConfig settings;
  settings.num_heads = static_cast<int>(config.num_heads);
  settings.kv = config.kv(l);
  settings.window = full ? 0 : static_cast<int>(config.sliding_window);
  settings.norm_eps = config.rms_norm_eps;
  const RopeSettings& rope = full ? config.full_rope : config.sliding_rope;
  settings.inverse_frequencies = layers::proportional_rope_frequencies(
      settings.kv.head_dim, rope.theta, rope.rotary_factor, rope.factor);

  const std::int64_t dim = settings.kv.head_dim;
  const std::int64_t kv_width = settings.kv.num_kv_heads * dim;
  layers::RopeAttentionWeights weights;
  FLOTILLA_TRY(weights.q,
               loader.matrix(base + "q_proj", config.num_heads * dim, config.hidden_size));
  FLOTILLA_TRY(weights.o,
               loader.matrix(base + "o_proj", config.hidden_size, config.num_heads * dim));
  FLOTILLA_TRY(weights.q_norm, loader.vector(base + "q_norm.weight", dim));
  if (config.shares_kv(l)) {
    // Some converters keep these although no layer reads them.
    loader.ignore_matrix(base + "k_proj");
    loader.ignore_matrix(base + "v_proj");
    loader.ignore(base + "k_norm.weight");
  } else {
    FLOTILLA_TRY(weights.k, loader.matrix(base + "k_proj", kv_width, config.hidden_size));
    FLOTILLA_TRY(weights.k_norm, loader.vector(base + "k_norm.weight", dim));
    if (!full || !config.values_from_keys) {
      FLOTILLA_TRY(weights.v, loader.matrix(base + "v_proj", kv_width, config.hidden_size));
    }
  }
  return layers::RopeAttention(std::move(settings), std::move(weights));
}

Result<layers::GatedMlp> load_mlp(WeightLoader& loader, const Config& config, std::int64_t l) {
  const std::string base = "layers." + std::to_string(l) + ".mlp.";
  const std::int64_t size = config.mlp_size(l);
  FLOTILLA_TRY(auto gate_up,
               loader.gated(base + "gate_proj", base + "up_proj", size, config.hidden_size));
  FLOTILLA_TRY(auto down, loader.matrix(base + "down_proj", config.hidden_size, size));
  if (gate_up) return layers::GatedMlp(std::move(gate_up), std::move(down));
  FLOTILLA_TRY(auto gate, loader.matrix(base + "gate_proj", size, config.hidden_size));
  FLOTILLA_TRY(auto up, loader.matrix(base + "up_proj", size, config.hidden_size));
  return layers::GatedMlp(std::move(gate), std::move(up), std::move(down));
}

Result<Layer> load_layer(WeightLoader& loader, const Config& config, std::int64_t l) {
  const std::string base = "layers." + std::to_string(l) + ".";
  const std::int64_t hidden = config.hidden_size;
  Layer layer;
  layer.kv_layer = config.kv_layer(l);
  FLOTILLA_TRY(layer.attention, load_attention(loader, config, l));
  FLOTILLA_TRY(layer.mlp, load_mlp(loader, config, l));
  FLOTILLA_TRY(layer.input_norm, loader.vector(base + "input_layernorm.weight", hidden));
  FLOTILLA_TRY(layer.post_attention_norm,
               loader.vector(base + "post_attention_layernorm.weight", hidden));
  FLOTILLA_TRY(layer.pre_mlp_norm,
               loader.vector(base + "pre_feedforward_layernorm.weight", hidden));
  FLOTILLA_TRY(layer.post_mlp_norm,
               loader.vector(base + "post_feedforward_layernorm.weight", hidden));
  FLOTILLA_TRY(layer.scalar, loader.scalar(base + "layer_scalar"));
  if (config.per_layer_size > 0) {
    PerLayerBlock block;
    FLOTILLA_TRY(block.gate,
                 loader.matrix(base + "per_layer_input_gate", config.per_layer_size, hidden));
    FLOTILLA_TRY(block.projection,
                 loader.matrix(base + "per_layer_projection", hidden, config.per_layer_size));
    FLOTILLA_TRY(block.norm, loader.vector(base + "post_per_layer_input_norm.weight", hidden));
    layer.per_layer = std::move(block);
  }
  return layer;
}

Result<PerLayerInputs> load_per_layer_inputs(WeightLoader& loader, const Config& config) {
  const std::int64_t width = config.num_layers() * config.per_layer_size;
  PerLayerInputs inputs;
  FLOTILLA_TRY(inputs.embedding,
               loader.matrix("embed_tokens_per_layer", config.per_layer_vocab, width));
  FLOTILLA_TRY(inputs.projection,
               loader.matrix("per_layer_model_projection", width, config.hidden_size));
  FLOTILLA_TRY(inputs.norm,
               loader.vector("per_layer_projection_norm.weight", config.per_layer_size));
  inputs.num_layers = config.num_layers();
  inputs.size = config.per_layer_size;
  inputs.norm_eps = config.rms_norm_eps;
  return inputs;
}

Result<Weights> load_weights(WeightLoader& loader, const Config& config) {
  Weights weights;
  FLOTILLA_TRY(weights.embedding,
               loader.matrix("embed_tokens", config.vocab_size, config.hidden_size));
  FLOTILLA_TRY(weights.final_norm, loader.vector("norm.weight", config.hidden_size));
  if (config.per_layer_size > 0) {
    FLOTILLA_TRY(weights.per_layer, load_per_layer_inputs(loader, config));
  }
  for (std::int64_t l = 0; l < config.num_layers(); ++l) {
    FLOTILLA_TRY(Layer layer, load_layer(loader, config, l));
    weights.layers.push_back(std::move(layer));
  }
  FLOTILLA_TRY_STATUS(loader.check_all_layer_tensors_taken());
  return weights;
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make(const checkpoint::Checkpoint& checkpoint,
                                       backend::Backend& backend, const LoadProgress& progress) {
  FLOTILLA_TRY(const std::string prefix, checkpoint.text_prefix());
  FLOTILLA_TRY(Config config, read_config(checkpoint, prefix));
  config.kv_element_bytes = backend.kv_element_bytes();
  FLOTILLA_TRY(checkpoint::GenerationDefaults defaults,
               checkpoint::read_generation_defaults(checkpoint.folder(), checkpoint.config()));
  WeightLoader loader(checkpoint, backend, prefix, progress);
  FLOTILLA_TRY(Weights weights, load_weights(loader, config));
  std::int64_t weight_bytes = loader.matrix_bytes();
  if (!config.tied_head) {
    WeightLoader head_loader(checkpoint, backend, "", progress);
    FLOTILLA_TRY(weights.head, head_loader.matrix(head_module(checkpoint, prefix),
                                                  config.vocab_size, config.hidden_size));
    // A step reads one row of an embedding that is not the head.
    weight_bytes +=
        head_loader.matrix_bytes() - static_cast<std::int64_t>(weights.embedding->resident_bytes());
  }
  if (weights.per_layer)
    weight_bytes -= static_cast<std::int64_t>(weights.per_layer->embedding->resident_bytes());
  for (const std::string& note : loader.notes())
    log::warn("checkpoint_metadata_disagree", {{"note", note}});

  ModelInfo info;
  info.family = "gemma4";
  info.vocab_size = config.vocab_size;
  info.context_length = config.context_length;
  info.num_layers = config.num_layers();
  info.hidden_size = config.hidden_size;
  info.num_parameters =
      loader.num_parameters() + (config.tied_head ? 0 : config.vocab_size * config.hidden_size);
  info.weight_bytes = weight_bytes;
  info.eos_ids = std::move(defaults.eos_ids);
  return std::unique_ptr<CausalLM>(
      std::make_unique<Model>(std::move(config), std::move(weights), std::move(info)));
}

}  // namespace flotilla::models::gemma4
