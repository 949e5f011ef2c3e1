// Activation memory that is reused between steps.
#pragma once

#include <cstdint>

#include "flotilla/backend/backend.h"

namespace flotilla::layers {

// One float32 matrix that grows and never shrinks. Not thread-safe; contents do not survive the
// next view().
class Scratch {
 public:
  // [rows, cols], not initialised. Allocates only when no earlier view was as large.
  backend::Tensor view(backend::Backend& backend, std::int64_t rows, std::int64_t cols);

 private:
  backend::Tensor storage_;  // one dimension
};

}  // namespace flotilla::layers
