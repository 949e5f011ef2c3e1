// Products of more than 16 tokens: wgmma, with the sums of decode_kernel.
#pragma once

#include "flotilla/backend/cuda/device/block_formats.cuh"
#include "flotilla/backend/cuda/device/packed.cuh"
#include "flotilla/backend/cuda/device/wgmma.cuh"

namespace flotilla::backend::cuda {

template <int kTokens, int kStages, class Format = Affine4>
struct WgmmaShared {
  static constexpr int kX = kTokens * 128;
  static constexpr int kStage = (kX + Format::kBlockBytes + 1023) / 1024 * 1024;
  static constexpr int kPrefillTotal = kStages * kStage + 1024 + 256;
};

// The A fragments of one group for this warp's 16 rows.
template <class Format>
__device__ __forceinline__ void fetch_weights(std::uint32_t block, int warp, int lane,
                                              std::uint32_t (&f)[4][4]) {
  const typename Format::Loaded w = Format::load(
      block + warp * Format::kTileBytes + lane * 16,
      block + Format::kCodeBytes + warp * Format::kTileScaleBytes + Format::lane_scales(lane));
  const typename Format::Scales scales = Format::scales(w);
#pragma unroll
  for (int j = 0; j < 4; ++j) Format::fragment(f[j], w, scales, j);
}

// 17 to 128 tokens. One thread block does two processors of the partition: kProcs = 2: side by
// side, each with two warpgroups of 64 rows and its own ring; kProcs = 1: one after the other
// (their weights are contiguous), when the accumulators leave no registers for four warpgroups.
template <int kTokens, int kStages, int kProcs, class Format = Affine4,
          class Pieces = PiecesInOrder>
__global__ __launch_bounds__(288 * kProcs,
                             1) void split_kernel(const __grid_constant__ CUtensorMap x_map,
                                                  const __grid_constant__ LinearParams a) {
  using S = WgmmaShared<kTokens, kStages, Format>;
  constexpr int kBytes = Format::kBlockBytes;
  extern __shared__ std::uint8_t raw[];
  const bool producer = threadIdx.x >= 256 * kProcs;
  const int half = producer ? (threadIdx.x - 256 * kProcs) >> 5 : threadIdx.x >> 8;
  const std::uint32_t shared = (smem_u32(raw) + 1023u) & ~1023u;
  const std::uint32_t base = shared + half * kStages * S::kStage;
  const std::uint32_t bars = shared + kProcs * kStages * S::kStage + half * 16 * kStages;
  const int warp = (threadIdx.x >> 5) & 7, lane = threadIdx.x & 31;
  const Partition part = a.part;
  const int first_proc = (blockIdx.x * kProcs + half) * (2 / kProcs);
  const int begin = part.begin(first_proc), end = part.begin(first_proc + 2 / kProcs);

  if (threadIdx.x < 2 * kProcs * kStages) {
    const int i = threadIdx.x % (2 * kStages);
    mbar_init(shared + kProcs * kStages * S::kStage + threadIdx.x * 8, i < kStages ? 1 : 8);
    mbar_init_fence();
  }
  __syncthreads();

  if (producer) {
    if (lane != 0) return;
    const std::uint64_t policy = policy_evict_first();
    auto load_w = [&](int s, int unit) {
      mbar_expect(bars + 8 * s, S::kX + kBytes);
      bulk_load(base + s * S::kStage + S::kX,
                block_at<kBytes>(a, unit / part.groups, unit % part.groups), kBytes, bars + 8 * s,
                policy);
    };
    auto load_x = [&](int s, int unit) {
      tensor_load(base + s * S::kStage, &x_map, 0, 0, unit % part.groups, bars + 8 * s);
    };
    grid_launch_dependents();
    const int filled = min(kStages, end - begin);
    for (int i = 0; i < filled; ++i) load_w(i, begin + i);
    grid_wait();
    for (int i = 0; i < filled; ++i) load_x(i, begin + i);
    int s = 0, phase = 0;
    for (int unit = begin + filled; unit < end; ++unit) {
      mbar_wait(bars + 8 * (kStages + s), phase);
      load_w(s, unit);
      load_x(s, unit);
      if (++s == kStages) s = 0, phase ^= 1;
    }
    return;
  }

  int s = 0, phase = 0;
  float acc[1][kTokens / 8][4];
  float(&flat)[kTokens / 2] = *reinterpret_cast<float(*)[kTokens / 2]>(&acc[0][0][0]);
  std::uint32_t af[2][4][4];
  auto fetch = [&](int stage, std::uint32_t(&f)[4][4]) {
    fetch_weights<Format>(base + stage * S::kStage + S::kX, warp, lane, f);
  };

  int deferred = -1;
  float4* aside = reinterpret_cast<float4*>(a.totals) +
                  (static_cast<std::size_t>(blockIdx.x) * 8 + warp) * (kTokens / 8) * 32 + lane;
  int unit = begin, proc = first_proc, rb = begin / part.groups;
  while (unit < end) {
    if (unit == part.begin(proc + 1)) ++proc;
    const int stop = min(part.begin(proc + 1), (rb + 1) * part.groups);
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) flat[i] = 0.0f;
    mbar_wait(bars + 8 * s, phase);
    fetch(s, af[0]);
    int s_prev = -1;
    auto step = [&](std::uint32_t(&f)[4][4], std::uint32_t(&f_next)[4][4]) {
      const std::uint64_t x = wgmma_descriptor(base + s * S::kStage);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < 4; ++j) Wgmma<kTokens>::run(flat, f[j], x + 2 * j, 1);
      wgmma_commit();
      wgmma_wait<1>();
      if (s_prev >= 0 && lane == 0) mbar_arrive(bars + 8 * (kStages + s_prev));
      s_prev = s;
      if (++s == kStages) s = 0, phase ^= 1;
      if (++unit < stop) {
        mbar_wait(bars + 8 * s, phase);
        fetch(s, f_next);
      }
    };
    while (unit + 2 <= stop) {
      step(af[0], af[1]);
      step(af[1], af[0]);
    }
    if (unit < stop) step(af[0], af[1]);
    wgmma_wait<0>();
    if (lane == 0) mbar_arrive(bars + 8 * (kStages + s_prev));
    const bool whole = unit == (rb + 1) * part.groups;
    if (kProcs == 1 && proc == first_proc && !whole && part.first_proc(rb) == proc) {
      // This block's second processor has the next piece: put ours aside, add them up at the end.
      deferred = rb;
#pragma unroll
      for (int nt = 0; nt < kTokens / 8; ++nt)
        __stcg(aside + nt * 32,
               make_float4(acc[0][nt][0], acc[0][nt][1], acc[0][nt][2], acc[0][nt][3]));
    } else {
      Pieces::template finish<1, kTokens / 8>(a, proc, rb, warp, lane, acc);
    }
    if (whole) ++rb;
  }
  if (deferred >= 0) {
#pragma unroll
    for (int nt = 0; nt < kTokens / 8; ++nt) {
      const float4 v = __ldcg(aside + nt * 32);
      acc[0][nt][0] = v.x, acc[0][nt][1] = v.y, acc[0][nt][2] = v.z, acc[0][nt][3] = v.w;
    }
    Pieces::template finish<1, kTokens / 8>(a, first_proc, deferred, warp, lane, acc);
  }
}

constexpr int kPrefillThreads = 384;  // two warpgroups of 64 rows; one thread of the third loads

// Tiles in panels of columns, so that a wave of blocks shares weights and activations in L2.
template <int kTokens>
__device__ __forceinline__ void tile_at(int tile, int row_blocks, int col_blocks, int& rb,
                                        int& cb) {
  constexpr int kPanel = 2048 / kTokens > 0 ? 2048 / kTokens : 1;
  const int per_panel = row_blocks * kPanel;
  const int panel = tile / per_panel, rest = tile - panel * per_panel;
  const int width = min(kPanel, col_blocks - panel * kPanel);
  rb = rest / width;
  cb = panel * kPanel + rest - rb * width;
}

// More than 128 tokens: tiles of 128 weight rows x kTokens tokens. Pieces of the partition are
// parked in L2 and added in index order.
template <int kTokens, int kStages, class Format = Affine4>
__global__ __launch_bounds__(kPrefillThreads,
                             1) void prefill_kernel(const __grid_constant__ CUtensorMap x_map,
                                                    const __grid_constant__ LinearParams a) {
  using S = WgmmaShared<kTokens, kStages, Format>;
  constexpr int kBytes = Format::kBlockBytes;
  extern __shared__ std::uint8_t raw[];
  const std::uint32_t base = (smem_u32(raw) + 1023u) & ~1023u;
  const std::uint32_t bars = base + kStages * S::kStage;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const Partition part = a.part;
  const int row_blocks = part.units / part.groups, col_blocks = (a.m + kTokens - 1) / kTokens;
  const int tiles = row_blocks * col_blocks;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbar_init(bars + 8 * i, 1);
      mbar_init(bars + 8 * (kStages + i), 8);
    }
    mbar_init_fence();
  }
  __syncthreads();

  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x != 256) return;
    grid_launch_dependents();
    grid_wait();
    int s = 0, phase = 1;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      int rb, cb;
      tile_at<kTokens>(tile, row_blocks, col_blocks, rb, cb);
      const std::uint8_t* w = block_at<kBytes>(a, rb, 0);
      for (int g = 0; g < part.groups; ++g) {
        mbar_wait(bars + 8 * (kStages + s), phase);
        const std::uint32_t stage = base + s * S::kStage, full = bars + 8 * s;
        mbar_expect(full, S::kX + kBytes);
        bulk_load(stage + S::kX, w + static_cast<std::size_t>(g) * kBytes, kBytes, full);
        tensor_load(stage, &x_map, 0, cb * kTokens, g, full);
        if (++s == kStages) s = 0, phase ^= 1;
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  float* totals =
      a.totals + (static_cast<std::size_t>(blockIdx.x) * (kTokens / 2)) * 256 + threadIdx.x;
  int s = 0, phase = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    int rb, cb;
    tile_at<kTokens>(tile, row_blocks, col_blocks, rb, cb);
    int proc = part.first_proc(rb);
    const bool split = proc != part.last_proc(rb);
    int piece_end = min(part.begin(proc + 1) - rb * part.groups, part.groups);
    bool first_piece = true;

    float acc[kTokens / 2];
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) acc[i] = 0.0f;
    std::uint32_t af[2][4][4];
    auto fetch = [&](int stage, std::uint32_t(&f)[4][4]) {
      fetch_weights<Format>(base + stage * S::kStage + S::kX, warp, lane, f);
    };
    auto flush = [&](int g) {  // the partition begins a new piece after group g
      if (g + 1 != piece_end || g + 1 >= part.groups) return;
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        if (!first_piece) acc[i] = __ldcg(totals + i * 256) + acc[i];
      }
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        __stcg(totals + i * 256, acc[i]);
        acc[i] = 0.0f;
      }
      first_piece = false;
      ++proc;
      piece_end = min(part.begin(proc + 1) - rb * part.groups, part.groups);
    };

    mbar_wait(bars + 8 * s, phase);
    fetch(s, af[0]);
    // Group g's products run while group g + 1 is dequantised; a stage is released one step late.
    int s_prev = -1;
    auto step = [&](int g, std::uint32_t(&f)[4][4], std::uint32_t(&f_next)[4][4]) {
      const std::uint64_t x = wgmma_descriptor(base + s * S::kStage);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < 4; ++j) Wgmma<kTokens>::run(acc, f[j], x + 2 * j, 1);
      wgmma_commit();
      wgmma_wait<1>();
      if (s_prev >= 0 && lane == 0) mbar_arrive(bars + 8 * (kStages + s_prev));
      s_prev = s;
      if (++s == kStages) s = 0, phase ^= 1;
      if (g + 1 < part.groups) {
        mbar_wait(bars + 8 * s, phase);
        fetch(s, f_next);
      }
      if (g + 1 == piece_end || g + 1 == part.groups) {
        wgmma_wait<0>();
        flush(g);
      }
    };
    int g = 0;
    for (; g + 2 <= part.groups; g += 2) {
      step(g, af[0], af[1]);
      step(g + 1, af[1], af[0]);
    }
    if (g < part.groups) step(g, af[0], af[1]);
    if (lane == 0) mbar_arrive(bars + 8 * (kStages + s_prev));
    wgmma_wait<0>();
    if (split) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) acc[i] = __ldcg(totals + i * 256) + acc[i];
    }
    const Segment& segment = segment_of(a, rb);
    const int row = (rb - segment.first_block) * kRows + warp * 16 + 2 * (lane >> 2);
#pragma unroll
    for (int nt = 0; nt < kTokens / 8; ++nt)
      store_pair(a, segment, cb * kTokens + nt * 8 + 2 * (lane & 3), row, acc + 4 * nt);
  }
}

}  // namespace flotilla::backend::cuda
