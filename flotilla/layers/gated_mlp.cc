#include "flotilla/layers/gated_mlp.h"

#include <array>
#include <utility>
#include <vector>

#include "flotilla/ops/ops.h"

namespace flotilla::layers {
using backend::Matrix;
using backend::Tensor;

GatedMlp::GatedMlp(std::unique_ptr<Matrix> gate, std::unique_ptr<Matrix> up,
                   std::unique_ptr<Matrix> down)
    : gate_(std::move(gate)), up_(std::move(up)), down_(std::move(down)) {}

GatedMlp::GatedMlp(std::unique_ptr<Matrix> gate_up, std::unique_ptr<Matrix> down)
    : gate_up_(std::move(gate_up)), down_(std::move(down)) {}

Tensor GatedMlp::forward(backend::Backend& backend, const Tensor& x) const {
  if (gate_up_ != nullptr) {
    return ops::linear(backend, *down_, ops::linear_gated(backend, *gate_up_, x));
  }
  const std::array<const Matrix*, 2> weights = {gate_.get(), up_.get()};
  const std::vector<Tensor> wide = ops::linear_group(backend, weights, x);
  return ops::linear(backend, *down_, ops::gelu_mul(backend, wide[0], wide[1]));
}

}  // namespace flotilla::layers
