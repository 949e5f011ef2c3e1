#include "bench/cuda/relaxations/pieces.cuh"
#include "bench/cuda/relaxations/relaxed.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"
#include "flotilla/backend/cuda/device/linear_wgmma.cuh"

namespace flotilla::cuda_check {
namespace {

template <class Rule>
cudaError_t run(const device::bf16* x, int k, const device::LinearParams& params,
                int multiprocessors, cudaStream_t stream) {
  constexpr int kTokens = 64, kStages = 8, kProcs = 2;
  CUtensorMap map;
  const cudaError_t made = device::make_x_map(x, params.m, k, kTokens, 1, &map);
  if (made != cudaSuccess) return made;
  constexpr int kShared =
      kProcs * kStages * (device::WgmmaShared<kTokens, kStages>::kStage + 16) + 1024;
  return device::launch(device::split_kernel<kTokens, kStages, kProcs, device::Affine4, Rule>,
                        dim3(static_cast<unsigned>(multiprocessors)), 288 * kProcs, kShared, stream,
                        map, params);
}

}  // namespace

cudaError_t relaxed_split(Pieces pieces, const device::bf16* x, int k,
                          const device::LinearParams& params, int multiprocessors,
                          cudaStream_t stream) {
  switch (pieces) {
    case Pieces::kAtomics:
      return run<PiecesByAtomics>(x, k, params, multiprocessors, stream);
    case Pieces::kLastArriver:
      return run<PiecesByLastArriver>(x, k, params, multiprocessors, stream);
    case Pieces::kInOrder:
      break;
  }
  return run<device::PiecesInOrder>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::cuda_check
