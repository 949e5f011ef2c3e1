#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"
#include "flotilla/backend/cuda/device/linear_wgmma.cuh"

namespace flotilla::backend::cuda {
namespace {

template <int kTokens, int kStages, int kProcs>
cudaError_t run(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                cudaStream_t stream) {
  CUtensorMap map;
  const cudaError_t made = make_x_map(x, params.m, k, kTokens, 1, &map);
  if (made != cudaSuccess) return made;
  constexpr int kShared = kProcs * kStages * (WgmmaShared<kTokens, kStages>::kStage + 16) + 1024;
  return launch(split_kernel<kTokens, kStages, kProcs>, dim3(multiprocessors), 288 * kProcs,
                kShared, stream, map, params);
}

}  // namespace

cudaError_t launch_split(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                         cudaStream_t stream) {
  if (params.m <= 32) return run<32, 10, 2>(x, k, params, multiprocessors, stream);
  if (params.m <= 64) return run<64, 8, 2>(x, k, params, multiprocessors, stream);
  return run<128, 9, 1>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::backend::cuda
