// down(gelu(gate(x)) * up(x))
#pragma once

#include <cstdint>
#include <memory>

#include "flotilla/backend/backend.h"
#include "flotilla/layers/scratch.h"

namespace flotilla::layers {

struct GatedMlpScratch {
  Scratch gate;
  Scratch up;
};

// Const after construction; all of a call's memory is in its scratch.
class GatedMlp {
 public:
  // gate, up [intermediate, hidden]; down [hidden, intermediate]
  GatedMlp(std::unique_ptr<backend::Matrix> gate, std::unique_ptr<backend::Matrix> up,
           std::unique_ptr<backend::Matrix> down);
  // x, out [num_tokens, hidden]
  void forward(backend::Backend& backend, GatedMlpScratch& scratch, const backend::Tensor& x,
               const backend::Tensor& out) const;

 private:
  std::unique_ptr<backend::Matrix> gate_, up_, down_;
};

}  // namespace flotilla::layers
