// The loaded model; used by gemma4.cc, which builds it, and its tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "flotilla/layers/gated_mlp.h"
#include "flotilla/layers/rope_attention.h"
#include "flotilla/models/causal_lm.h"
#include "flotilla/models/gemma4/gemma4_config.h"
#include "flotilla/models/gemma4/per_layer_inputs.h"

namespace flotilla::models::gemma4 {

struct Layer {
  std::optional<layers::RopeAttention> attention;
  std::optional<layers::GatedMlp> mlp;
  // [hidden] each
  tensor::Tensor input_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
  float scalar = 1.0f;        // multiplies the residual stream at the end of the layer
  std::int64_t kv_layer = 0;  // whose pages the attention reads
  std::optional<PerLayerBlock> per_layer;
};

struct Weights {
  std::unique_ptr<backend::Matrix> embedding;
  std::unique_ptr<backend::Matrix> head;  // empty: the embedding
  tensor::Tensor final_norm;
  std::vector<Layer> layers;
  std::optional<PerLayerInputs> per_layer;
};

class Model final : public CausalLM {
 public:
  Model(Config config, Weights weights, ModelInfo info);
  const ModelInfo& info() const override { return info_; }
  const state::StateLayout& state_layout() const override { return layout_; }
  std::unique_ptr<Workspace> make_workspace() const override;
  tensor::Tensor forward(backend::Backend& backend, Workspace& workspace,
                         const ForwardInput& input) const override;
  std::shared_ptr<backend::HostCopy> start(backend::Backend& backend, Workspace& workspace,
                                           const ForwardInput& input) const override;

 private:
  struct Scratchpad;
  // Fills ids, positions and rows; checks what only a bug of the caller could get wrong.
  void gather(Scratchpad& pad, const ForwardInput& input) const;
  // `normed` is the layer's normed input, and then that of the next layer (empty: none follows).
  void run_layer(backend::Backend& backend, Scratchpad& pad, const ForwardInput& input,
                 std::size_t index, const tensor::Tensor& hidden, tensor::Tensor& normed) const;
  // The forward pass up to logits or chosen tokens, where the backend keeps them.
  struct StepResult {
    tensor::Tensor logits, chosen;
  };
  StepResult run_step(backend::Backend& backend, Scratchpad& pad, const ForwardInput& input,
                      bool chooses) const;
  tensor::Tensor wanted_logits(backend::Backend& backend, const ForwardInput& input,
                               const tensor::Tensor& logits) const;
  tensor::Tensor compute_logits(backend::Backend& backend, Scratchpad& pad,
                                const ForwardInput& input, const tensor::Tensor& hidden) const;

  Config config_;
  Weights weights_;
  ModelInfo info_;
  state::StateLayout layout_;
  const std::uint64_t number_ = backend::new_model_number();
};

}  // namespace flotilla::models::gemma4
