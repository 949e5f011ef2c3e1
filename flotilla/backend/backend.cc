// The parts of Backend that are composed of others, for backends that work in host memory.
#include "flotilla/backend/backend.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

namespace flotilla::backend {

std::uint64_t new_model_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::shared_ptr<HostCopy> Backend::fetch(const Tensor& tensor) {
  class Done final : public HostCopy {
   public:
    explicit Done(Tensor tensor) : tensor_(std::move(tensor)) {}
    Tensor wait() override { return tensor_; }

   private:
    Tensor tensor_;
  };
  return std::make_shared<Done>(to_host(tensor));
}

void Backend::linear_gated(const LinearArgs&) {
  FLOTILLA_CHECK(false, "a gated product on a backend that prepares no weights for it");
}

void Backend::attention_inputs(const AttentionInputArgs& args) {
  const auto flat = [](const Tensor& t) { return t.reshape({t.dim(0) * t.dim(1), t.dim(2)}); };
  const Tensor q = flat(args.q);
  rms_norm({.x = q, .weight = args.q_norm, .eps = args.eps, .out = q});
  rope({.x = args.q, .positions = args.positions, .inverse_frequencies = args.inverse_frequencies});
  if (args.k.empty()) return;
  const Tensor values = allocate(args.v.shape(), args.v.dtype());
  rms_norm({.x = flat(args.v), .weight = {}, .eps = args.eps, .out = flat(values)});
  const Tensor k = flat(args.k);
  rms_norm({.x = k, .weight = args.k_norm, .eps = args.eps, .out = k});
  rope({.x = args.k, .positions = args.positions, .inverse_frequencies = args.inverse_frequencies});
  kv_append({.k = args.k, .v = values, .geometry = args.geometry, .rows = args.rows});
}

void Backend::norm_add_norm(const NormAddNormArgs& args) {
  norm_add(args.add);
  rms_norm({.x = args.add.residual, .weight = args.weight, .eps = args.eps, .out = args.out});
}

void Backend::gather_rows(const GatherRowsArgs& args) {
  if (args.rows.empty()) return;
  const std::size_t bytes = args.source.num_bytes() / static_cast<std::size_t>(args.source.dim(0));
  for (std::size_t i = 0; i < args.rows.size(); ++i) {
    std::memcpy(args.out.bytes() + i * bytes,
                args.source.bytes() + static_cast<std::size_t>(args.rows[i]) * bytes, bytes);
  }
}

void Backend::argmax(const ArgmaxArgs& args) {
  const std::int64_t dim = args.x.dim(1);
  for (std::int64_t r = 0; r < args.x.dim(0); ++r) {
    const float* row = args.x.data<float>() + r * dim;
    std::int64_t best = 0;
    bool finite = true;
    for (std::int64_t i = 0; i < dim; ++i) {
      finite = finite && std::isfinite(row[i]);
      if (row[i] > row[best]) best = i;
    }
    if (!finite) best = -1;
    args.out.data<std::int32_t>()[r] = static_cast<std::int32_t>(best);
  }
}

std::vector<Shortlist> Backend::shortlist(const ShortlistArgs& args) {
  const auto dim = static_cast<std::size_t>(args.x.dim(1));
  std::vector<Shortlist> out;
  for (const ShortlistRow& row : args.rows) {
    const float* logits = args.x.data<float>() + static_cast<std::size_t>(row.row) * dim;
    out.push_back(define_shortlist({logits, dim}, row));
  }
  return out;
}

}  // namespace flotilla::backend
