#include "bench/peers/linears.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

#include "bench/peers/ggml_peer.h"
#include "bench/peers/measure.h"
#include "bench/peers/read_loop.h"
#include "bench/peers/shared_library.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/ops/ops.h"

namespace flotilla::peers {
namespace {

using backend::Backend;
using backend::Matrix;
using tensor::Tensor;

class OurLinears {
 public:
  OurLinears(Backend& backend, const ModelShape& shape) : backend_(backend) {
    std::uint64_t seed = 1;
    for (const LinearGroup& group : shape.linears()) {
      auto& weights = groups_.emplace_back();
      for (const std::int64_t n : group.n) {
        auto made = backend.prepare(
            backend::fixed_matrix({backend::WeightFormat::kAffine, 4, 64}, n, group.k, seed++));
        if (!made.ok()) fail(made.error().message);
        bytes_ += static_cast<double>((*made)->resident_bytes());
        weights.push_back(made->get());
        owned_.push_back(std::move(*made));
      }
    }
  }
  double bytes() const { return bytes_; }
  void prepare(std::int64_t rows) {
    inputs_.clear();
    for (const auto& weights : groups_) {
      Tensor& x = inputs_[weights[0]->k()];
      if (x.empty()) x = backend::fixed_activations({rows, weights[0]->k()}, 9);
    }
  }
  void run() const {
    for (const auto& weights : groups_) {
      (void)ops::linear_group(backend_, weights, inputs_.at(weights[0]->k()));
    }
  }

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<Matrix>> owned_;
  std::vector<std::vector<const Matrix*>> groups_;
  std::map<std::int64_t, Tensor> inputs_;  // by k
  double bytes_ = 0;
};

}  // namespace

void bench_linears(const ModelShape& shape, const LinearOptions& o) {
  auto made = backend::make_cpu_backend(
      {.num_threads = o.threads,
       .pin_threads = o.pin,
       .target = o.best ? backend::CpuTarget::kBest : backend::CpuTarget::kAvx2});
  if (!made.ok()) fail(made.error().message);
  Backend& backend = **made;
  OurLinears ours(backend, shape);
  GgmlPeer peer(o.peer_folder, choose_cpu_library(o.peer_folder, o.best), shape, o.threads);
  ReadLoop read(static_cast<std::size_t>(ours.bytes()), o.threads);
  const double weights = shape.num_weights();
  std::printf("\nlinears of %s: %s\n%.2f G weights; ours %.0f MB affine 4-bit group 64, %s; ",
              shape.name.c_str(), shape.text.c_str(), weights * 1e-9, ours.bytes() * 1e-6,
              backend.capabilities().device.c_str());
  std::printf("peer %.0f MB q4_0%s, %s, %d threads\n\n", weights * 4.5 / 8 * 1e-6,
              peer.is_repacked() ? " repacked" : "", peer.cpu_name().c_str(), o.threads);
  std::printf(
      "| rows | read loop GB/s | ours GB/s | peer GB/s | ours GMAC/s | peer GMAC/s "
      "| ours of read loop | ours of peer (p10, p90) | disturbed |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
  for (const int rows : o.rows) {
    ours.prepare(rows);
    peer.prepare(rows);
    const std::vector<Contender> contenders = {{"read", [&] { read.run(); }},
                                               {"ours", [&] { ours.run(); }},
                                               {"peer", [&] { peer.run(rows); }}};
    const int rounds = rows >= 64 ? std::max(3, o.rounds / 2) : o.rounds;
    const Rounds result = measure(contenders, rounds, o.min_seconds, o.threads, o.clock);
    const double read_s = quantiles(result.seconds[0]).p50;
    const double ours_s = quantiles(result.seconds[1]).p50;
    const double peer_s = quantiles(result.seconds[2]).p50;
    const Quantiles of_peer = ratio(result, 2, 1);
    std::printf("| %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.2f | **%.2f** (%.2f, %.2f) | %d |\n",
                rows, ours.bytes() / read_s * 1e-9, ours.bytes() / ours_s * 1e-9,
                weights * 4.5 / 8 / peer_s * 1e-9, weights * rows / ours_s * 1e-9,
                weights * rows / peer_s * 1e-9, ratio(result, 0, 1).p50, of_peer.p50, of_peer.p10,
                of_peer.p90, result.disturbed);
    std::fflush(stdout);
  }
}

}  // namespace flotilla::peers
