#include "flotilla/backend/cuda/device/linear_decode.cuh"

#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"

namespace flotilla::backend::cuda {
namespace {

template <int kColumns>
cudaError_t run(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                cudaStream_t stream) {
  CUtensorMap map;
  const cudaError_t made = make_x_map(x, params.m, k, 8 * kColumns, Affine4::kDecodeGroups, &map);
  if (made != cudaSuccess) return made;
  constexpr int kShared = DecodeShared<kColumns, Affine4>::kTotal;
  static_assert(2 * kAloneBytes > 227 * 1024 && kShared <= kAloneBytes);
  return launch(decode_kernel<kColumns>, dim3(multiprocessors), kDecodeThreads, kAloneBytes, stream,
                map, params);
}

}  // namespace

cudaError_t make_x_map(const bf16* x, int m, int k, int box_tokens, int box_groups,
                       CUtensorMap* map) {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found) != cudaSuccess)
      function = nullptr;
    return reinterpret_cast<Encode>(function);
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t dims[3] = {64, static_cast<cuuint64_t>(m), static_cast<cuuint64_t>(k / 64)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(k) * 2, 128};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_tokens),
                             static_cast<cuuint32_t>(box_groups)};
  const cuuint32_t step[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<bf16*>(x), dims, strides, box,
             step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t launch_decode(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                          cudaStream_t stream) {
  return params.m <= 8 ? run<1>(x, k, params, multiprocessors, stream)
                       : run<2>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::backend::cuda
