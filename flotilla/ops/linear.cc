#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {
namespace {

Tensor allocate_product(Backend& backend, const Matrix& weight, const Tensor& x,
                        tensor::DType type) {
  FLOTILLA_CHECK(x.dim(1) == weight.k(), "linear: input of " + std::to_string(x.dim(1)) +
                                             " against a weight of " + std::to_string(weight.k()));
  return backend.allocate({x.dim(0), weight.n()}, type);
}

}  // namespace

Tensor linear(Backend& backend, const Matrix& weight, const Tensor& x) {
  check_values(backend, x, 2, "linear: input");
  Tensor out = allocate_product(backend, weight, x, backend.activation_dtype());
  backend.linear({.weight = &weight, .x = x, .out = out});
  return out;
}

Tensor linear_gated(Backend& backend, const Matrix& weight, const Tensor& x) {
  check_values(backend, x, 2, "linear_gated: input");
  FLOTILLA_CHECK(x.dim(1) == weight.k() && weight.n() % 2 == 0, "linear_gated: another weight");
  const Tensor out = backend.allocate({x.dim(0), weight.n() / 2}, backend.activation_dtype());
  backend.linear_gated({.weight = &weight, .x = x, .out = out});
  return out;
}

Tensor linear_f32(Backend& backend, const Matrix& weight, const Tensor& x) {
  check_values(backend, x, 2, "linear: input");
  Tensor out = allocate_product(backend, weight, x, tensor::DType::kF32);
  backend.linear({.weight = &weight, .x = x, .out = out});
  return out;
}

std::vector<Tensor> linear_group(Backend& backend, std::span<const Matrix* const> weights,
                                 const Tensor& x) {
  check_values(backend, x, 2, "linear_group: input");
  std::vector<Tensor> outs;
  outs.reserve(weights.size());
  for (const Matrix* weight : weights)
    outs.push_back(allocate_product(backend, *weight, x, backend.activation_dtype()));
  backend.linear_group({.weights = weights, .x = x, .outs = outs});
  return outs;
}

}  // namespace flotilla::ops
