#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {

void norm_add(Backend& backend, const Tensor& x, const Tensor& weight, float eps, float scale,
              const Tensor& residual) {
  check_f32(x, 2, "norm_add: input");
  check_f32(weight, 1, "norm_add: weight");
  check_f32(residual, 2, "norm_add: residual");
  FLOTILLA_CHECK(x.shape() == residual.shape() && x.dim(1) == weight.dim(0) && x.dim(1) > 0,
                 "norm_add: input " + x.shape().to_string() + ", residual " +
                     residual.shape().to_string() + ", weight " + weight.shape().to_string());
  backend.norm_add({.x = x, .weight = weight, .eps = eps, .scale = scale, .residual = residual});
}

}  // namespace flotilla::ops
