#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {

Tensor gelu_mul(Backend& backend, const Tensor& gate, const Tensor& up) {
  check_values(backend, gate, gate.shape().rank(), "gelu_mul: gate");
  check_values(backend, up, up.shape().rank(), "gelu_mul: up");
  FLOTILLA_CHECK(gate.shape() == up.shape(),
                 "gelu_mul: gate " + gate.shape().to_string() + ", up " + up.shape().to_string());
  backend.gelu_mul({.gate = gate, .up = up, .out = gate});
  return gate;
}

}  // namespace flotilla::ops
