// Products of up to 16 tokens: mma.sync, weights streamed through a ring in shared memory.
#pragma once

#include <type_traits>

#include "flotilla/backend/cuda/device/block_formats.cuh"
#include "flotilla/backend/cuda/device/packed.cuh"

namespace flotilla::backend::cuda {

constexpr int kTilesPerWarp = 2;  // 16-row tiles: two independent mma chains share one x fragment
constexpr int kConsumerWarps = 8 / kTilesPerWarp;  // per row block
constexpr int kConsumerThreads = kConsumerWarps * 32;
constexpr int kProcsPerBlock = 2;
constexpr int kDecodeThreads = (kConsumerThreads + 32) * kProcsPerBlock;

// A product of few tokens has one thread block on each multiprocessor, all of them at work until
// the end. Where a kernel of a few blocks (a norm, attention) comes before it, the card is almost
// empty, and two of its blocks would gather on one multiprocessor while others have none; and where
// the block of the next product moves in early, the product after that one finds uneven room. So
// every product asks for so much shared memory that no two of them fit on a multiprocessor, which
// makes a layer of the 31B model 13 us faster at one row. (To bring weights to the L2 cache during
// the small kernels makes it 5 to 10 us slower.)
constexpr int kAloneBytes = 118 * 1024;

template <int kColumns, class Format>  // tiles of 8 tokens
struct DecodeShared {
  static constexpr int kGroups = Format::kDecodeGroups, kStages = Format::kDecodeStages;
  // One stage: kGroups groups of [8 * kColumns tokens][64] bf16 in the 128-byte swizzle.
  static constexpr int kX = kGroups * kColumns * 8 * 128;
  static constexpr int kW = kGroups * Format::kBlockBytes;
  static constexpr int kWAt = kStages * kX;
  static constexpr int kRing = (kWAt + kStages * kW + 1023) / 1024 * 1024;
  static constexpr int kTotal = kProcsPerBlock * (kRing + 16 * kStages) + 1024;
};

// Each thread block is two processors of the partition, each with four consumer warps of 32 rows,
// a producer warp and its own ring.
template <int kColumns, class Format = Affine4, class Pieces = PiecesInOrder>
__global__ __launch_bounds__(kDecodeThreads,
                             1) void decode_kernel(const __grid_constant__ CUtensorMap x_map,
                                                   const __grid_constant__ LinearParams a) {
  using S = DecodeShared<kColumns, Format>;
  constexpr int D = Format::kDecodeStages, U = Format::kDecodeGroups;
  constexpr int kBytes = Format::kBlockBytes;
  extern __shared__ std::uint8_t raw[];
  const bool producer = threadIdx.x >= kConsumerThreads * kProcsPerBlock;
  const int half = producer ? (threadIdx.x - kConsumerThreads * kProcsPerBlock) >> 5
                            : threadIdx.x / kConsumerThreads;
  const std::uint32_t shared = (smem_u32(raw) + 1023u) & ~1023u;
  const std::uint32_t ring = shared + half * S::kRing;
  const std::uint32_t full = shared + kProcsPerBlock * S::kRing + half * 16 * D;
  const std::uint32_t empty = full + 8 * D;
  const Partition part = a.part;
  const int proc = blockIdx.x * kProcsPerBlock + half;
  const int begin = part.begin(proc), end = part.begin(proc + 1);

  if (threadIdx.x < 2 * kProcsPerBlock * D) {
    const int i = threadIdx.x % (2 * D);
    mbar_init(shared + kProcsPerBlock * S::kRing + threadIdx.x * 8, i < D ? 1 : kConsumerWarps);
    mbar_init_fence();
  }
  __syncthreads();

  if (producer) {
    if ((threadIdx.x & 31) != 0) return;
    const std::uint64_t policy = policy_evict_first();
    grid_launch_dependents();
    int rb = begin / part.groups, g = begin % part.groups, unit = begin;
    auto count = [&](int u, int in_row) { return min(min(U, end - u), part.groups - in_row); };
    auto load_w = [&](int s, int n) {
      mbar_expect(full + 8 * s, n * kBytes + S::kX);
      bulk_load(ring + S::kWAt + s * S::kW, block_at<kBytes>(a, rb, g), n * kBytes, full + 8 * s,
                policy);
      unit += n, g += n;
      if (g == part.groups) g = 0, ++rb;
    };
    auto load_x = [&](int s, int in_row) {
      tensor_load(ring + s * S::kX, &x_map, 0, 0, in_row, full + 8 * s);
    };
    // Weights do not depend on the previous kernel: the whole ring is requested before waiting.
    int u_x = unit, g_x = g, filled = 0;
    for (; filled < D && unit < end; ++filled) load_w(filled, count(unit, g));
    grid_wait();
    for (int i = 0; i < filled; ++i) {
      const int n = count(u_x, g_x);
      load_x(i, g_x);
      u_x += n, g_x += n;
      if (g_x == part.groups) g_x = 0;
    }
    int s = 0, phase = 0;
    while (unit < end) {
      mbar_wait(empty + 8 * s, phase);
      const int in_row = g;
      load_w(s, count(unit, g));
      load_x(s, in_row);
      if (++s == D) s = 0, phase ^= 1;
    }
    return;
  }

  const int warp = (threadIdx.x >> 5) % kConsumerWarps, lane = threadIdx.x & 31;
  const std::uint32_t w_lane =
      ring + S::kWAt + warp * (kTilesPerWarp * Format::kTileBytes) + lane * 16;
  const std::uint32_t c_lane = ring + S::kWAt + Format::kCodeBytes +
                               warp * (kTilesPerWarp * Format::kTileScaleBytes) +
                               Format::lane_scales(lane);
  const std::uint32_t row8 = lane & 7;
  const std::uint32_t x_lane0 = ring + row8 * 128 + (((lane >> 3) ^ row8) << 4);
  const std::uint32_t x_lane1 = ring + row8 * 128 + (((4 + (lane >> 3)) ^ row8) << 4);
  float acc[kTilesPerWarp][kColumns][4];
  auto clear = [&] {
#pragma unroll
    for (int mt = 0; mt < kTilesPerWarp; ++mt) {
#pragma unroll
      for (int nt = 0; nt < kColumns; ++nt)
        acc[mt][nt][0] = acc[mt][nt][1] = acc[mt][nt][2] = acc[mt][nt][3] = 0.0f;
    }
  };
  clear();

  // N groups of a stage: all loads first, then the mma chains of the two tiles side by side.
  auto groups = [&](int s, auto n_groups) {
    constexpr int N = decltype(n_groups)::value;
    const std::uint32_t wa = w_lane + s * S::kW, ca = c_lane + s * S::kW;
    const std::uint32_t x0 = x_lane0 + s * S::kX, x1 = x_lane1 + s * S::kX;
    typename Format::Loaded w[N][kTilesPerWarp];
    std::uint32_t x[N][kColumns][2][4];
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int mt = 0; mt < kTilesPerWarp; ++mt) {
        w[i][mt] = Format::load(wa + i * kBytes + mt * Format::kTileBytes,
                                ca + i * kBytes + mt * Format::kTileScaleBytes);
      }
#pragma unroll
      for (int nt = 0; nt < kColumns; ++nt) {
        load_matrix4(x[i][nt][0], x0 + (i * kColumns + nt) * 1024);
        load_matrix4(x[i][nt][1], x1 + (i * kColumns + nt) * 1024);
      }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      typename Format::Scales scales[kTilesPerWarp];
#pragma unroll
      for (int mt = 0; mt < kTilesPerWarp; ++mt) scales[mt] = Format::scales(w[i][mt]);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int mt = 0; mt < kTilesPerWarp; ++mt) {
          std::uint32_t af[4];
          Format::fragment(af, w[i][mt], scales[mt], j);
#pragma unroll
          for (int nt = 0; nt < kColumns; ++nt)
            mma(acc[mt][nt], af, x[i][nt][j >> 1][(j & 1) * 2], x[i][nt][j >> 1][(j & 1) * 2 + 1]);
        }
      }
    }
  };

  int s = 0, phase = 0;
  int unit = begin, rb = begin / part.groups;
  while (unit < end) {
    const int stop = min(end, (rb + 1) * part.groups);
    while (unit < stop) {
      const int n = min(U, stop - unit);
      mbar_wait(full + 8 * s, phase);
      static_assert(U == 4 || U == 2);
      if (n == U) {
        groups(s, std::integral_constant<int, U>());
      } else if (U == 4 && n == 3) {
        groups(s, std::integral_constant < int, U == 4 ? 3 : 1 > ());
      } else if (U == 4 && n == 2) {
        groups(s, std::integral_constant < int, U == 4 ? 2 : 1 > ());
      } else {
        groups(s, std::integral_constant<int, 1>());
      }
      __syncwarp();
      if (lane == 0) mbar_arrive(empty + 8 * s);
      if (++s == D) s = 0, phase ^= 1;
      unit += n;
    }
    Pieces::template finish<kTilesPerWarp, kColumns>(a, proc, rb, warp * kTilesPerWarp, lane, acc);
    clear();
    ++rb;
  }
}

}  // namespace flotilla::backend::cuda
