#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {

void norm_add(Backend& backend, const Tensor& x, const Tensor& weight, float eps, float scale,
              const Tensor& residual) {
  check_values(backend, x, 2, "norm_add: input");
  check_f32(weight, 1, "norm_add: weight");
  check_f32(residual, 2, "norm_add: residual");
  FLOTILLA_CHECK(x.shape() == residual.shape() && x.dim(1) == weight.dim(0) && x.dim(1) > 0,
                 "norm_add: input " + x.shape().to_string() + ", residual " +
                     residual.shape().to_string() + ", weight " + weight.shape().to_string());
  backend.norm_add({.x = x, .weight = weight, .eps = eps, .scale = scale, .residual = residual});
}

Tensor norm_add_norm(Backend& backend, const Tensor& x, const Tensor& weight, float eps,
                     float scale, const Tensor& residual, const Tensor& next_weight) {
  check_values(backend, x, 2, "norm_add_norm: input");
  check_f32(weight, 1, "norm_add_norm: weight");
  check_f32(next_weight, 1, "norm_add_norm: weight of the second norm");
  check_f32(residual, 2, "norm_add_norm: residual");
  FLOTILLA_CHECK(x.shape() == residual.shape() && x.dim(1) == weight.dim(0) &&
                     x.dim(1) == next_weight.dim(0) && x.dim(1) > 0,
                 "norm_add_norm: input " + x.shape().to_string() + ", residual " +
                     residual.shape().to_string() + ", weight " + weight.shape().to_string());
  Tensor out = backend.allocate(x.shape(), backend.activation_dtype());
  backend.norm_add_norm(
      {.add = {.x = x, .weight = weight, .eps = eps, .scale = scale, .residual = residual},
       .weight = next_weight,
       .eps = eps,
       .out = out});
  return out;
}

}  // namespace flotilla::ops
