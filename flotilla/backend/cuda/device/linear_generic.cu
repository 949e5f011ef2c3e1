// Products and rows of any stored format as it is, without packing: correct, and slow.
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/values.cuh"

namespace flotilla::backend::cuda {
namespace {

__device__ float half_to_float(std::uint16_t v) {
  const std::uint32_t sign = (v & 0x8000u) << 16, exponent = (v >> 10) & 31u, rest = v & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | (rest << 13));
  if (exponent != 0) return __uint_as_float(sign | ((exponent + 112) << 23) | (rest << 13));
  const float small = static_cast<float>(rest) * 0x1p-24f;
  return (v & 0x8000u) != 0 ? -small : small;
}
__device__ float e4m3_to_float(std::uint8_t v) {
  const int exponent = (v >> 3) & 15, rest = v & 7;
  float out;
  if (exponent == 15 && rest == 7) {
    out = NAN;
  } else if (exponent == 0) {
    out = static_cast<float>(rest) * 0x1p-9f;
  } else {
    out = ldexpf(1.0f + static_cast<float>(rest) * 0.125f, exponent - 7);
  }
  return (v & 0x80) != 0 ? -out : out;
}
__device__ float e8m0_to_float(std::uint8_t v) {
  if (v == 255) return NAN;
  return v == 0 ? 0x1p-127f : __uint_as_float(static_cast<std::uint32_t>(v) << 23);
}
__device__ float e2m1_to_float(std::uint32_t v) {
  const float steps[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  float out = 0.0f;
#pragma unroll
  for (std::uint32_t i = 0; i < 8; ++i) out = (v & 7) == i ? steps[i] : out;
  return (v & 8) != 0 ? -out : out;
}

__device__ float scale_at(const std::uint8_t* data, ScaleKind kind, std::size_t i) {
  switch (kind) {
    case ScaleKind::kF32:
      return reinterpret_cast<const float*>(data)[i];
    case ScaleKind::kF16:
      return half_to_float(reinterpret_cast<const std::uint16_t*>(data)[i]);
    case ScaleKind::kBF16:
      return __bfloat162float(reinterpret_cast<const bf16*>(data)[i]);
    case ScaleKind::kE8M0:
      return e8m0_to_float(data[i]);
    case ScaleKind::kE4M3:
      return e4m3_to_float(data[i]);
    case ScaleKind::kNone:
      break;
  }
  return 1.0f;
}

__device__ float weight_at(const GenericMatrix& w, int n, int k) {
  const std::size_t at = static_cast<std::size_t>(n) * w.k + k;
  float code = 0.0f;
  switch (w.code) {
    case CodeKind::kF32:
      return reinterpret_cast<const float*>(w.codes)[at];
    case CodeKind::kF16:
      return half_to_float(reinterpret_cast<const std::uint16_t*>(w.codes)[at]);
    case CodeKind::kBF16:
      return __bfloat162float(reinterpret_cast<const bf16*>(w.codes)[at]);
    case CodeKind::kE4M3:
      code = e4m3_to_float(w.codes[at]);
      break;
    case CodeKind::kE2M1:
      code = e2m1_to_float((w.codes[at / 2] >> (at % 2 * 4)) & 15u);
      break;
    case CodeKind::kAffine: {
      // Rows end at a 32-bit word, and a code lies in at most two of them.
      const std::size_t bit = at * w.bits;
      const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(w.codes) + bit / 32;
      const unsigned shift = bit % 32;
      std::uint32_t v = words[0] >> shift;
      if (shift + w.bits > 32) v |= words[1] << (32 - shift);
      code = static_cast<float>(v & ((1u << w.bits) - 1));
      break;
    }
  }
  const std::size_t group = static_cast<std::size_t>(n) * (w.k / w.group) + k / w.group;
  const float scale = scale_at(w.scales, w.scale, group);
  if (w.code != CodeKind::kAffine) return code * scale;
  return fmaf(code, scale, scale_at(w.biases, w.scale, group));
}

constexpr int kTokensPerWarp = 8;
constexpr int kWarps = 8;

template <class Out>
__global__ void linear_kernel(const __grid_constant__ GenericMatrix w, const bf16* x, int m,
                              Out* out) {
  grid_launch_dependents();
  grid_wait();
  const int n = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = blockIdx.y * kTokensPerWarp;
  if (n >= w.n) return;
  float sum[kTokensPerWarp] = {};
  for (int k = lane; k < w.k; k += 32) {
    const float weight = weight_at(w, n, k);
#pragma unroll
    for (int t = 0; t < kTokensPerWarp; ++t) {
      if (first + t >= m) continue;
      const float v = __bfloat162float(x[static_cast<std::size_t>(first + t) * w.k + k]);
      sum[t] = fmaf(weight, v, sum[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokensPerWarp; ++t) {
    const float total = sum_over_warp(sum[t]);
    if (first + t < m && lane == 0)
      store_one(out, static_cast<std::size_t>(first + t) * w.n + n, total);
  }
}

template <class Out>
__global__ void embedding_kernel(const __grid_constant__ GenericMatrix w,
                                 const __grid_constant__ TokenIds ids, float factor, Out* out) {
  grid_launch_dependents();
  grid_wait();
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= w.k) return;
  store_one(out, static_cast<std::size_t>(blockIdx.y) * w.k + column,
            weight_at(w, token_at(ids, blockIdx.y), column) * factor);
}

}  // namespace

cudaError_t linear_generic(const GenericMatrix& w, const bf16* x, int m, Values out,
                           cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((w.n + kWarps - 1) / kWarps),
                  static_cast<unsigned>((m + kTokensPerWarp - 1) / kTokensPerWarp));
  return out.is_f32 ? launch(linear_kernel<float>, grid, kWarps * 32, 0, stream, w, x, m,
                             static_cast<float*>(out.data))
                    : launch(linear_kernel<bf16>, grid, kWarps * 32, 0, stream, w, x, m,
                             static_cast<bf16*>(out.data));
}

cudaError_t embedding_generic(const GenericMatrix& w, const TokenIds& ids, int tokens, float factor,
                              Values out, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((w.k + 255) / 256), static_cast<unsigned>(tokens));
  return out.is_f32 ? launch(embedding_kernel<float>, grid, 256, 0, stream, w, ids, factor,
                             static_cast<float*>(out.data))
                    : launch(embedding_kernel<bf16>, grid, 256, 0, stream, w, ids, factor,
                             static_cast<bf16*>(out.data));
}

}  // namespace flotilla::backend::cuda
