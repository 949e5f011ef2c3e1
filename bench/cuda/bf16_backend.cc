#include "bf16_backend.h"

#include <cmath>
#include <set>

#include "check_util.h"
#include "flotilla/backend/cpu/definition.h"

namespace flotilla::cuda_check {
namespace {

using namespace flotilla::backend;  // NOLINT: a backend

// Affine weights as the card multiplies them, rounded to bf16; embeddings use them as stored.
class RoundedMatrix final : public Matrix {
 public:
  RoundedMatrix(std::unique_ptr<Matrix> stored, std::unique_ptr<Matrix> rounded)
      : Matrix(stored->n(), stored->k()),
        stored_(std::move(stored)),
        rounded_(std::move(rounded)) {}
  std::size_t resident_bytes() const override { return stored_->resident_bytes(); }
  const Matrix& stored() const { return *stored_; }
  const Matrix& rounded() const { return *rounded_; }

 private:
  std::unique_ptr<Matrix> stored_, rounded_;
};

class Bf16Backend final : public Backend {
 public:
  explicit Bf16Backend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  Capabilities capabilities() const override { return inner_->capabilities(); }
  Tensor allocate(const Shape& shape, DType dtype) override {
    return inner_->allocate(shape, dtype);
  }
  Result<std::unique_ptr<Matrix>> prepare(const StoredMatrix& stored) override {
    StoredMatrix dense{.format = WeightFormat::kBF16, .n = stored.n, .k = stored.k};
    dense.weight = host_tensor({stored.n, stored.k}, DType::kBF16);
    for (std::int64_t n = 0; n < stored.n; ++n) {
      for (std::int64_t k = 0; k < stored.k; ++k) {
        const std::int64_t g = k / stored_group(stored);
        const float w = std::fma(stored_code(stored, n, k), stored_scale(stored, n, g),
                                 stored_bias(stored, n, g));
        dense.weight.data<std::uint16_t>()[n * stored.k + k] = tensor::f32_to_bf16(w);
      }
    }
    FLOTILLA_TRY(auto as_stored, inner_->prepare(stored));
    FLOTILLA_TRY(auto rounded, inner_->prepare(dense));
    return std::unique_ptr<Matrix>(
        std::make_unique<RoundedMatrix>(std::move(as_stored), std::move(rounded)));
  }
  void embedding(const EmbeddingArgs& args) override {
    heads_.insert(args.table);  // the tied head: its results are logits, which stay float32
    EmbeddingArgs inner = args;
    inner.table = &static_cast<const RoundedMatrix*>(args.table)->stored();
    inner_->embedding(inner);
  }
  void linear(const LinearArgs& args) override {
    const Tensor x = inner_->allocate(args.x.shape(), DType::kF32);
    std::memcpy(x.bytes(), args.x.bytes(), x.num_bytes());
    round_to_bf16(x);
    inner_->linear({.weight = &static_cast<const RoundedMatrix*>(args.weight)->rounded(),
                    .x = x,
                    .out = args.out});
    if (!heads_.contains(args.weight)) round_to_bf16(args.out);
  }
  void linear_group(const LinearGroupArgs& args) override {
    for (std::size_t i = 0; i < args.weights.size(); ++i)
      linear({.weight = args.weights[i], .x = args.x, .out = args.outs[i]});
  }
  void rms_norm(const RmsNormArgs& args) override {
    inner_->rms_norm(args);
    round_to_bf16(args.out);
  }
  void norm_add(const NormAddArgs& args) override { inner_->norm_add(args); }
  void rope(const RopeArgs& args) override {
    inner_->rope(args);
    round_to_bf16(args.x);
  }
  void gelu_mul(const GeluMulArgs& args) override {
    inner_->gelu_mul(args);
    round_to_bf16(args.out);
  }
  void softcap(const SoftcapArgs& args) override { inner_->softcap(args); }
  void kv_append(const KvAppendArgs& args) override { inner_->kv_append(args); }
  void attention(const AttentionArgs& args) override {
    inner_->attention(args);
    round_to_bf16(args.out);
  }

 private:
  std::unique_ptr<Backend> inner_;
  std::set<const Matrix*> heads_;
};

}  // namespace

std::unique_ptr<Backend> make_bf16_backend() {
  return std::make_unique<Bf16Backend>(std::move(make_cpu_backend({})).value());
}

}  // namespace flotilla::cuda_check
