#include "flagship.h"

#include "check_util.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/layers/rope_frequencies.h"
#include "flotilla/models/gemma4/gemma4_model.h"

namespace flotilla::cuda_check {
namespace {

namespace gemma4 = models::gemma4;

gemma4::Config config_of(int layers) {
  gemma4::Config c;
  c.vocab_size = 262144;
  c.hidden_size = 5376;
  c.intermediate_size = 21504;
  c.num_heads = 32;
  c.num_kv_heads = 16;
  c.num_global_kv_heads = 4;
  c.head_dim = 256;
  c.global_head_dim = 512;
  c.sliding_window = 1024;
  c.context_length = 262144;
  for (int l = 0; l < layers; ++l) {
    c.layers.push_back((l + 1) % 6 == 0 ? gemma4::LayerKind::kFull : gemma4::LayerKind::kSliding);
  }
  c.rms_norm_eps = 1e-6f;
  c.embedding_scale = 73.5f;
  c.softcap = 30.0f;
  c.sliding_rope = {.theta = 1e4};
  c.full_rope = {.theta = 1e6, .rotary_factor = 0.25};
  c.values_from_keys = true;
  c.kv_element_bytes = 2;
  return c;
}

class Maker {
 public:
  Maker(Backend& backend, gemma4::Config config)
      : backend_(backend), device_(*backend::cuda::cuda_device(backend)), c_(std::move(config)) {}

  std::unique_ptr<backend::Matrix> matrix(std::int64_t n, std::int64_t k) {
    auto made = device_.synthetic_matrix(n, k, ++seed_);
    bytes_ += static_cast<std::int64_t>(made->resident_bytes());
    return made;
  }
  Tensor vector(std::int64_t n, float value) {
    const Tensor host = host_tensor({n}, DType::kF32);
    for (std::size_t i = 0; i < floats(host).size(); ++i)
      floats(host)[i] = value * (0.95f + 0.01f * static_cast<float>(i % 11));
    return backend_.upload(host);
  }
  gemma4::Layer layer(std::int64_t l) {
    const bool full = c_.layers[static_cast<std::size_t>(l)] == gemma4::LayerKind::kFull;
    layers::RopeAttentionConfig settings;
    settings.num_heads = static_cast<int>(c_.num_heads);
    settings.kv = c_.kv(l);
    settings.window = full ? 0 : static_cast<int>(c_.sliding_window);
    settings.norm_eps = c_.rms_norm_eps;
    const auto& rope = full ? c_.full_rope : c_.sliding_rope;
    const std::int64_t dim = settings.kv.head_dim;
    settings.inverse_frequencies = layers::proportional_rope_frequencies(
        static_cast<int>(dim), rope.theta, rope.rotary_factor, rope.factor);
    layers::RopeAttentionWeights weights;
    weights.q = matrix(c_.num_heads * dim, c_.hidden_size);
    weights.k = matrix(settings.kv.num_kv_heads * dim, c_.hidden_size);
    if (!full) weights.v = matrix(settings.kv.num_kv_heads * dim, c_.hidden_size);
    weights.o = matrix(c_.hidden_size, c_.num_heads * dim);
    weights.q_norm = vector(dim, 0.3f);
    weights.k_norm = vector(dim, 0.3f);
    gemma4::Layer layer;
    layer.attention.emplace(std::move(settings), std::move(weights));
    auto gate_up = matrix(2 * c_.intermediate_size, c_.hidden_size);
    auto down = matrix(c_.hidden_size, c_.intermediate_size);
    layer.mlp.emplace(std::move(gate_up), std::move(down));
    layer.input_norm = vector(c_.hidden_size, 1.0f);
    layer.post_attention_norm = vector(c_.hidden_size, 0.5f);
    layer.pre_mlp_norm = vector(c_.hidden_size, 1.0f);
    layer.post_mlp_norm = vector(c_.hidden_size, 0.5f);
    layer.kv_layer = l;
    return layer;
  }
  std::int64_t bytes() const { return bytes_; }
  const gemma4::Config& config() const { return c_; }

 private:
  Backend& backend_;
  backend::cuda::CudaDevice& device_;
  gemma4::Config c_;
  std::uint64_t seed_ = 1;
  std::int64_t bytes_ = 0;
};

}  // namespace

Flagship make_flagship(Backend& backend, int layers) {
  Maker maker(backend, config_of(layers));
  gemma4::Weights weights;
  weights.embedding = maker.matrix(262144, 5376);
  weights.final_norm = maker.vector(5376, 1.0f);
  for (int l = 0; l < layers; ++l) weights.layers.push_back(maker.layer(l));
  models::ModelInfo info;
  info.family = "gemma4";
  info.vocab_size = 262144;
  info.context_length = 262144;
  info.num_layers = layers;
  info.hidden_size = 5376;
  info.weight_bytes = maker.bytes();
  Flagship flagship;
  flagship.weight_bytes = maker.bytes();
  flagship.model = std::make_unique<gemma4::Model>(maker.config(), std::move(weights), info);
  return flagship;
}

}  // namespace flotilla::cuda_check
