// Products of the packed formats on the shapes of gate and down, weights in turns.
#include <algorithm>

#include "check_util.h"
#include "checks.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/ops/ops.h"

namespace flotilla::cuda_check {
namespace {

constexpr int kSets = 6;

double seconds(Backend& backend, std::span<const std::unique_ptr<backend::Matrix>> weights,
               const Tensor& x, int calls) {
  auto& device = *backend::cuda::cuda_device(backend);
  // A step of an unknown model: recorded and replayed.
  const std::uint64_t model = backend::new_model_number();
  const backend::KvRow row{.first_row = 0, .num_tokens = 1, .first_position = 128, .kv = {}};
  const auto step = [&] {
    backend.begin_step({.model = model, .rows = {&row, 1}, .num_wanted = x.dim(0)});
    for (int i = 0; i < calls; ++i)
      ops::linear(backend, *weights[static_cast<std::size_t>(i) % weights.size()], x);
    backend.end_step();
  };
  for (int i = 0; i < 3; ++i) step();
  double best = 1e9;
  for (int i = 0; i < 4; ++i) best = std::min(best, device.timed(step));
  return best / calls;
}

}  // namespace

int bench_formats(Backend& backend) {
  using backend::MatrixKind;
  using enum backend::WeightFormat;
  auto& device = *backend::cuda::cuda_device(backend);
  const double rate = device.read_bandwidth(std::size_t{8} << 30, 5);
  std::printf("products by format; reading alone %.3f TB/s\n", rate / 1e12);
  std::printf("%-16s %14s %8s %14s %14s %14s %14s %12s %12s\n", "format", "shape", "MB",
              "1 row us (of rate)", "4", "16", "64", "512 TFLOP/s", "4096");
  for (const MatrixKind& kind :
       {MatrixKind{kAffine, 4, 64}, MatrixKind{kAffine, 4, 32}, MatrixKind{kAffine, 8, 64},
        MatrixKind{kAffine, 8, 32}, MatrixKind{kMxfp4, 4, 32}, MatrixKind{kMxfp8, 8, 32},
        MatrixKind{kBF16}}) {
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{43008, 5376}, {5376, 21504}}) {
      std::vector<std::unique_ptr<backend::Matrix>> weights;
      for (int i = 0; i < kSets; ++i)
        weights.push_back(device.synthetic_matrix(kind.format, kind.bits, kind.group_size, n, k,
                                                  static_cast<std::uint64_t>(i)));
      const auto bytes = static_cast<double>(weights[0]->resident_bytes());
      std::printf("%-16s %6lld x %5lld %8.1f", matrix_kind_name(kind).c_str(),
                  static_cast<long long>(n), static_cast<long long>(k), bytes / 1e6);
      for (const std::int64_t m : {1, 4, 16, 64, 512, 4096}) {
        const Tensor x = on_card(backend, backend::fixed_activations({m, k}, 1));
        const double time = seconds(backend, weights, x, m > 64 ? 6 : 30);
        if (m <= 64) {
          std::printf(" %7.1f (%2.0f%%)", time * 1e6, 100 * bytes / time / rate);
        } else {
          std::printf(" %11.0f", 2e-12 * static_cast<double>(n * k * m) / time);
        }
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace flotilla::cuda_check
