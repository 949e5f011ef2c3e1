// down(gelu(gate(x)) * up(x))
#pragma once

#include <memory>

#include "flotilla/backend/backend.h"

namespace flotilla::layers {

// Const after construction.
class GatedMlp {
 public:
  // gate, up [intermediate, hidden]; down [hidden, intermediate]
  GatedMlp(std::unique_ptr<backend::Matrix> gate, std::unique_ptr<backend::Matrix> up,
           std::unique_ptr<backend::Matrix> down);
  // gate_up: from Backend::prepare_gated()
  GatedMlp(std::unique_ptr<backend::Matrix> gate_up, std::unique_ptr<backend::Matrix> down);
  // x [num_tokens, hidden]; the result has the same shape.
  backend::Tensor forward(backend::Backend& backend, const backend::Tensor& x) const;

 private:
  std::unique_ptr<backend::Matrix> gate_, up_, gate_up_, down_;
};

}  // namespace flotilla::layers
