#include "flotilla/backend/broken_backend.h"

#include <cstring>
#include <utility>
#include <vector>

namespace flotilla::backend {
namespace {

class BrokenBackend final : public Backend {
 public:
  BrokenBackend(std::unique_ptr<Backend> inner, int split_k_rows)
      : inner_(std::move(inner)), split_k_rows_(split_k_rows) {}

  Capabilities capabilities() const override {
    Capabilities c = inner_->capabilities();
    c.device += ", broken on purpose";
    c.keeps_bit_contract = false;
    return c;
  }
  Tensor allocate(const Shape& shape, tensor::DType dtype) override {
    return inner_->allocate(shape, dtype);
  }
  Result<std::unique_ptr<Matrix>> prepare(const StoredMatrix& stored) override {
    return inner_->prepare(stored);
  }

  void linear(const LinearArgs& args) override {
    const Matrix* weights[] = {args.weight};
    const Tensor outs[] = {args.out};
    linear_group({.weights = weights, .x = args.x, .outs = outs});
  }
  void linear_group(const LinearGroupArgs& args) override {
    if (args.x.dim(0) < split_k_rows_) return inner_->linear_group(args);
    // With zeros for the other half, each product is the sum over its half of k.
    const Tensor low = zeroed_like(args.x), high = zeroed_like(args.x);
    const auto k = static_cast<std::size_t>(args.x.dim(1)), half = k / 2;
    for (std::size_t r = 0; r < static_cast<std::size_t>(args.x.dim(0)); ++r) {
      const float* x = args.x.data<float>() + r * k;
      std::memcpy(low.data<float>() + r * k, x, half * sizeof(float));
      std::memcpy(high.data<float>() + r * k + half, x + half, (k - half) * sizeof(float));
    }
    inner_->linear_group({.weights = args.weights, .x = low, .outs = args.outs});
    std::vector<Tensor> more;
    for (const Tensor& out : args.outs) more.push_back(allocate(out.shape(), out.dtype()));
    inner_->linear_group({.weights = args.weights, .x = high, .outs = more});
    for (std::size_t i = 0; i < more.size(); ++i) {
      float* out = args.outs[i].data<float>();
      const float* add = more[i].data<float>();
      for (std::int64_t e = 0; e < more[i].shape().num_elements(); ++e) out[e] += add[e];
    }
  }

  void embedding(const EmbeddingArgs& args) override { inner_->embedding(args); }
  void rms_norm(const RmsNormArgs& args) override { inner_->rms_norm(args); }
  void norm_add(const NormAddArgs& args) override { inner_->norm_add(args); }
  void rope(const RopeArgs& args) override { inner_->rope(args); }
  void gelu_mul(const GeluMulArgs& args) override { inner_->gelu_mul(args); }
  void softcap(const SoftcapArgs& args) override { inner_->softcap(args); }
  void kv_append(const KvAppendArgs& args) override { inner_->kv_append(args); }
  void attention(const AttentionArgs& args) override { inner_->attention(args); }

 private:
  Tensor zeroed_like(const Tensor& t) {
    Tensor out = inner_->allocate(t.shape(), t.dtype());
    std::memset(out.bytes(), 0, out.num_bytes());
    return out;
  }

  std::unique_ptr<Backend> inner_;
  int split_k_rows_;
};

}  // namespace

std::unique_ptr<Backend> make_broken_backend(std::unique_ptr<Backend> inner, int split_k_rows) {
  return std::make_unique<BrokenBackend>(std::move(inner), split_k_rows);
}

}  // namespace flotilla::backend
