#include "bench/cuda/relaxations/pieces.cuh"
#include "bench/cuda/relaxations/relaxed.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/linear_decode.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"

namespace flotilla::cuda_check {
namespace {

template <int kColumns, class Rule>
cudaError_t run(const device::bf16* x, int k, const device::LinearParams& params,
                int multiprocessors, cudaStream_t stream) {
  using device::Affine4;
  CUtensorMap map;
  const cudaError_t made =
      device::make_x_map(x, params.m, k, 8 * kColumns, Affine4::kDecodeGroups, &map);
  if (made != cudaSuccess) return made;
  static_assert(device::DecodeShared<kColumns, Affine4>::kTotal <= device::kAloneBytes);
  return device::launch(device::decode_kernel<kColumns, Affine4, Rule>,
                        dim3(static_cast<unsigned>(multiprocessors)), device::kDecodeThreads,
                        device::kAloneBytes, stream, map, params);
}

template <class Rule>
cudaError_t run_any(const device::bf16* x, int k, const device::LinearParams& params,
                    int multiprocessors, cudaStream_t stream) {
  return params.m <= 8 ? run<1, Rule>(x, k, params, multiprocessors, stream)
                       : run<2, Rule>(x, k, params, multiprocessors, stream);
}

}  // namespace

cudaError_t relaxed_product(Pieces pieces, const device::bf16* x, int k,
                            const device::LinearParams& params, int multiprocessors,
                            cudaStream_t stream) {
  if (params.m > 16) return relaxed_split(pieces, x, k, params, multiprocessors, stream);
  switch (pieces) {
    case Pieces::kAtomics:
      return run_any<PiecesByAtomics>(x, k, params, multiprocessors, stream);
    case Pieces::kLastArriver:
      return run_any<PiecesByLastArriver>(x, k, params, multiprocessors, stream);
    case Pieces::kInOrder:
      break;
  }
  return run_any<device::PiecesInOrder>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::cuda_check
