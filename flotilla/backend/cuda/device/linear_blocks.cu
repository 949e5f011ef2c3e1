// Which launch serves a block format.
#include "flotilla/backend/cuda/device/block_formats.cuh"
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"

namespace flotilla::backend::cuda {

int block_bytes(BlockFormat format) {
  switch (format) {
    case BlockFormat::kAffine4:
      return Affine4::kBlockBytes;
    case BlockFormat::kAffine4Fine:
      return Affine4Fine::kBlockBytes;
    case BlockFormat::kAffine8:
      return Affine8::kBlockBytes;
    case BlockFormat::kAffine8Fine:
      return Affine8Fine::kBlockBytes;
    case BlockFormat::kE2M1:
      return E2M1::kBlockBytes;
    case BlockFormat::kE4M3:
      return E4M3::kBlockBytes;
    case BlockFormat::kDense:
      break;
  }
  return Dense::kBlockBytes;
}

cudaError_t linear_blocks(BlockFormat format, const bf16* x, int k, LinearParams params,
                          const Workspace& workspace, int multiprocessors, cudaStream_t stream) {
  if (format == BlockFormat::kAffine4)
    return linear_packed(x, k, params, workspace, multiprocessors, stream);
  params.partials = workspace.partials;
  params.totals = workspace.totals;
  switch (format) {
    case BlockFormat::kAffine4Fine:
      return launch_affine4_fine(x, k, params, multiprocessors, stream);
    case BlockFormat::kAffine8:
      return launch_affine8(x, k, params, multiprocessors, stream);
    case BlockFormat::kAffine8Fine:
      return launch_affine8_fine(x, k, params, multiprocessors, stream);
    case BlockFormat::kE2M1:
      return launch_e2m1(x, k, params, multiprocessors, stream);
    case BlockFormat::kE4M3:
      return launch_e4m3(x, k, params, multiprocessors, stream);
    default:
      return launch_dense(x, k, params, multiprocessors, stream);
  }
}

}  // namespace flotilla::backend::cuda
