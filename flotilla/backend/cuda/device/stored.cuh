// Elements of matrices as the checkpoint stores them.
#pragma once

#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/values.cuh"

namespace flotilla::backend::cuda {

__device__ inline float half_to_float(std::uint16_t v) {
  const std::uint32_t sign = (v & 0x8000u) << 16, exponent = (v >> 10) & 31u, rest = v & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | (rest << 13));
  if (exponent != 0) return __uint_as_float(sign | ((exponent + 112) << 23) | (rest << 13));
  const float small = static_cast<float>(rest) * 0x1p-24f;
  return (v & 0x8000u) != 0 ? -small : small;
}
__device__ inline float e4m3_to_float(std::uint8_t v) {
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
__device__ inline float e8m0_to_float(std::uint8_t v) {
  if (v == 255) return NAN;
  return v == 0 ? 0x1p-127f : __uint_as_float(static_cast<std::uint32_t>(v) << 23);
}
__device__ inline float e2m1_to_float(std::uint32_t v) {
  const float steps[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  float out = 0.0f;
#pragma unroll
  for (std::uint32_t i = 0; i < 8; ++i) out = (v & 7) == i ? steps[i] : out;
  return (v & 8) != 0 ? -out : out;
}

__device__ inline float scale_at(const std::uint8_t* data, ScaleKind kind, std::size_t i) {
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

// The code of an element as it is stored, 32 bits at most.
__device__ inline std::uint32_t code_at(const GenericMatrix& w, int n, int k) {
  const std::size_t at = static_cast<std::size_t>(n) * w.k + k;
  switch (w.code) {
    case CodeKind::kF32:
      return reinterpret_cast<const std::uint32_t*>(w.codes)[at];
    case CodeKind::kF16:
    case CodeKind::kBF16:
      return reinterpret_cast<const std::uint16_t*>(w.codes)[at];
    case CodeKind::kE4M3:
      return w.codes[at];
    case CodeKind::kE2M1:
      return (w.codes[at / 2] >> (at % 2 * 4)) & 15u;
    case CodeKind::kAffine:
      break;
  }
  // Rows end at a 32-bit word, and a code lies in at most two of them.
  const std::size_t bit = at * w.bits;
  const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(w.codes) + bit / 32;
  const unsigned shift = bit % 32;
  std::uint32_t v = words[0] >> shift;
  if (shift + w.bits > 32) v |= words[1] << (32 - shift);
  return v & ((1u << w.bits) - 1);
}

__device__ inline float weight_at(const GenericMatrix& w, int n, int k) {
  const std::uint32_t v = code_at(w, n, k);
  float code = 0.0f;
  switch (w.code) {
    case CodeKind::kF32:
      return __uint_as_float(v);
    case CodeKind::kF16:
      return half_to_float(static_cast<std::uint16_t>(v));
    case CodeKind::kBF16:
      return __uint_as_float(v << 16);
    case CodeKind::kE4M3:
      code = e4m3_to_float(static_cast<std::uint8_t>(v));
      break;
    case CodeKind::kE2M1:
      code = e2m1_to_float(v);
      break;
    case CodeKind::kAffine:
      code = static_cast<float>(v);
      break;
  }
  const std::size_t group = static_cast<std::size_t>(n) * (w.k / w.group) + k / w.group;
  const float scale = scale_at(w.scales, w.scale, group);
  if (w.code != CodeKind::kAffine) return code * scale;
  return fmaf(code, scale, scale_at(w.biases, w.scale, group));
}

}  // namespace flotilla::backend::cuda
