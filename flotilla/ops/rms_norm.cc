#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {
namespace {

void run(Backend& backend, const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  const std::size_t rank = x.shape().rank();
  FLOTILLA_CHECK(rank >= 1, "rms_norm: the input has no dimension");
  check_values(backend, x, rank, "rms_norm: input");
  const std::int64_t dim = x.dim(rank - 1);
  FLOTILLA_CHECK(dim > 0, "rms_norm: the last dimension is empty");
  if (!weight.empty()) {
    check_f32(weight, 1, "rms_norm: weight");
    FLOTILLA_CHECK(weight.dim(0) == dim, "rms_norm: the weight differs from the last dimension");
  }
  const backend::Shape flat{x.shape().num_elements() / dim, dim};
  backend.rms_norm({.x = x.reshape(flat), .weight = weight, .eps = eps, .out = out.reshape(flat)});
}

}  // namespace

Tensor rms_norm(Backend& backend, const Tensor& x, const Tensor& weight, float eps) {
  Tensor out = backend.allocate(x.shape(), backend.activation_dtype());
  run(backend, x, weight, eps, out);
  return out;
}

void rms_norm_in_place(Backend& backend, const Tensor& x, const Tensor& weight, float eps) {
  run(backend, x, weight, eps, x);
}

}  // namespace flotilla::ops
