#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {

void softcap(Backend& backend, const Tensor& x, float cap) {
  check_values(backend, x, x.shape().rank(), "softcap: input");
  FLOTILLA_CHECK(cap > 0.0f, "softcap: the cap must be positive");
  backend.softcap({.x = x, .cap = cap});
}

}  // namespace flotilla::ops
