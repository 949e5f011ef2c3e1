// The families of packed products, each compiled in a file of its own.
#pragma once

#include <cuda.h>

#include "flotilla/backend/cuda/device/kernels.cuh"

namespace flotilla::backend::cuda {

cudaError_t launch_decode(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                          cudaStream_t stream);
cudaError_t launch_split(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                         cudaStream_t stream);
cudaError_t launch_prefill(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                           cudaStream_t stream);
// Any number of tokens, by block format.
cudaError_t launch_affine4_fine(const bf16* x, int k, const LinearParams& params,
                                int multiprocessors, cudaStream_t stream);
cudaError_t launch_affine8(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                           cudaStream_t stream);
cudaError_t launch_affine8_fine(const bf16* x, int k, const LinearParams& params,
                                int multiprocessors, cudaStream_t stream);
cudaError_t launch_e2m1(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                        cudaStream_t stream);
cudaError_t launch_e4m3(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                        cudaStream_t stream);
cudaError_t launch_dense(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                         cudaStream_t stream);
// x [m][k] as boxes of 64 columns x box_tokens x box_groups in the 128-byte swizzle.
cudaError_t make_x_map(const bf16* x, int m, int k, int box_tokens, int box_groups,
                       CUtensorMap* map);

}  // namespace flotilla::backend::cuda
