#include "flotilla/layers/scratch.h"

#include <algorithm>

namespace flotilla::layers {
using backend::Shape;
using backend::Tensor;

Tensor Scratch::view(backend::Backend& backend, std::int64_t rows, std::int64_t cols) {
  const std::int64_t wanted = rows * cols;
  const std::int64_t have = storage_.empty() ? 0 : storage_.dim(0);
  if (wanted > have) {
    storage_ = Tensor();  // before the new one, so that both never exist together
    // Room to grow by a half: a chunked prefill would otherwise allocate for each longer chunk.
    storage_ = backend.allocate(Shape{std::max(wanted, have + have / 2)}, tensor::DType::kF32);
  }
  return storage_.rows(0, wanted).reshape(Shape{rows, cols});
}

}  // namespace flotilla::layers
