#include <algorithm>

#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"
#include "flotilla/backend/cuda/device/linear_wgmma.cuh"

namespace flotilla::backend::cuda {
namespace {

template <int kTokens, int kStages>
cudaError_t run(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                cudaStream_t stream) {
  CUtensorMap map;
  const cudaError_t made = make_x_map(x, params.m, k, kTokens, 1, &map);
  if (made != cudaSuccess) return made;
  const int tiles = params.part.units / params.part.groups * ((params.m + kTokens - 1) / kTokens);
  return launch(prefill_kernel<kTokens, kStages>, dim3(std::min(tiles, multiprocessors)),
                kPrefillThreads, WgmmaShared<kTokens, kStages>::kPrefillTotal, stream, map, params);
}

}  // namespace

cudaError_t launch_prefill(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                           cudaStream_t stream) {
  // Any tile width gives the same bits: take the one that should finish first, from the waves it
  // needs and its own measured efficiency.
  const long long blocks = params.part.units / params.part.groups;
  const auto cost = [&](int tokens, double efficiency) {
    const long long tiles = blocks * ((params.m + tokens - 1) / tokens);
    return static_cast<double>((tiles + multiprocessors - 1) / multiprocessors * tokens) /
           efficiency;
  };
  const double c128 = cost(128, 0.80), c232 = cost(232, 0.97), c256 = cost(256, 1.0);
  if (c128 < c232 && c128 < c256) return run<128, 9>(x, k, params, multiprocessors, stream);
  if (c232 < c256) return run<232, 5>(x, k, params, multiprocessors, stream);
  return run<256, 5>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::backend::cuda
