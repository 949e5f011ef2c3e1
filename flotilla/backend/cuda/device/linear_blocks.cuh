// Launches of the products of one block format. Each format is compiled in a file of its own.
#pragma once

#include <algorithm>

#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/linear_decode.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"
#include "flotilla/backend/cuda/device/linear_wgmma.cuh"

namespace flotilla::backend::cuda {

constexpr int kMostShared = 227 * 1024;  // of a thread block

template <class Format, int kColumns>
cudaError_t decode_blocks(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                          cudaStream_t stream) {
  CUtensorMap map;
  const cudaError_t made = make_x_map(x, params.m, k, 8 * kColumns, Format::kDecodeGroups, &map);
  if (made != cudaSuccess) return made;
  constexpr int kShared = std::max(kAloneBytes, DecodeShared<kColumns, Format>::kTotal);
  static_assert(kShared <= kMostShared);
  return launch(decode_kernel<kColumns, Format>, dim3(static_cast<unsigned>(multiprocessors)),
                kDecodeThreads, kShared, stream, map, params);
}

template <class Format, int kTokens, int kProcs>
cudaError_t split_blocks(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                         cudaStream_t stream) {
  CUtensorMap map;
  const cudaError_t made = make_x_map(x, params.m, k, kTokens, 1, &map);
  if (made != cudaSuccess) return made;
  constexpr int kStage = WgmmaShared<kTokens, 1, Format>::kStage + 16;
  constexpr int kStages = std::min(8, (kMostShared - 1024) / (kProcs * kStage));
  return launch(split_kernel<kTokens, kStages, kProcs, Format>,
                dim3(static_cast<unsigned>(multiprocessors)), 288 * kProcs,
                kProcs * kStages * kStage + 1024, stream, map, params);
}

template <class Format, int kTokens>
cudaError_t prefill_blocks(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                           cudaStream_t stream) {
  CUtensorMap map;
  const cudaError_t made = make_x_map(x, params.m, k, kTokens, 1, &map);
  if (made != cudaSuccess) return made;
  constexpr int kStage = WgmmaShared<kTokens, 1, Format>::kStage;
  constexpr int kStages = std::min(8, (kMostShared - 1024 - 256) / kStage);
  const int tiles = params.part.units / params.part.groups * ((params.m + kTokens - 1) / kTokens);
  return launch(prefill_kernel<kTokens, kStages, Format>,
                dim3(static_cast<unsigned>(std::min(tiles, multiprocessors))), kPrefillThreads,
                WgmmaShared<kTokens, kStages, Format>::kPrefillTotal, stream, map, params);
}

// Which kernel serves how many tokens changes no bits.
template <class Format>
cudaError_t launch_blocks(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                          cudaStream_t stream) {
  const int m = params.m;
  if (m <= 8) return decode_blocks<Format, 1>(x, k, params, multiprocessors, stream);
  if (m <= 16) return decode_blocks<Format, 2>(x, k, params, multiprocessors, stream);
  if (m <= 64) return split_blocks<Format, 64, 2>(x, k, params, multiprocessors, stream);
  if (m <= kSplitTokens) return split_blocks<Format, 128, 1>(x, k, params, multiprocessors, stream);
  const long long blocks = params.part.units / params.part.groups;
  const auto cost = [&](int tokens, double efficiency) {
    const long long tiles = blocks * ((m + tokens - 1) / tokens);
    return static_cast<double>((tiles + multiprocessors - 1) / multiprocessors * tokens) /
           efficiency;
  };
  if (cost(128, 0.80) < cost(256, 1.0))
    return prefill_blocks<Format, 128>(x, k, params, multiprocessors, stream);
  return prefill_blocks<Format, 256>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::backend::cuda
