#include "flotilla/layers/gated_mlp.h"

#include <array>
#include <utility>

namespace flotilla::layers {
using backend::Matrix;
using backend::Tensor;

GatedMlp::GatedMlp(std::unique_ptr<Matrix> gate, std::unique_ptr<Matrix> up,
                   std::unique_ptr<Matrix> down)
    : gate_(std::move(gate)), up_(std::move(up)), down_(std::move(down)) {}

void GatedMlp::forward(backend::Backend& backend, GatedMlpScratch& scratch, const Tensor& x,
                       const Tensor& out) const {
  const std::int64_t num_tokens = x.dim(0);
  const std::array<Tensor, 2> outs = {scratch.gate.view(backend, num_tokens, gate_->n()),
                                      scratch.up.view(backend, num_tokens, up_->n())};
  const std::array<const Matrix*, 2> weights = {gate_.get(), up_.get()};
  backend.linear_group({.weights = weights, .x = x, .outs = outs});
  backend.gelu_mul({.gate = outs[0], .up = outs[1], .out = outs[0]});
  backend.linear({.weight = down_.get(), .x = outs[0], .out = out});
}

}  // namespace flotilla::layers
