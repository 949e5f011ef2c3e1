// Other rules for adding the pieces of a row block than PiecesInOrder.
#pragma once

#include "flotilla/backend/cuda/device/packed.cuh"

namespace flotilla::cuda_check {

namespace device = backend::cuda;

struct PiecesByAtomics {
  template <int kTiles, int kColumns>
  static __device__ __forceinline__ void finish(const device::LinearParams& a, int proc, int rb,
                                                int tile0, int lane,
                                                float (&acc)[kTiles][kColumns][4]) {
    if (a.part.first_proc(rb) == a.part.last_proc(rb))
      return device::store_piece<kTiles, kColumns>(a, rb, tile0, lane, acc);
    const device::Segment& s = device::segment_of(a, rb);
#pragma unroll
    for (int mt = 0; mt < kTiles; ++mt) {
      const int row = (rb - s.first_block) * device::kRows + (tile0 + mt) * 16 + 2 * (lane >> 2);
#pragma unroll
      for (int nt = 0; nt < kColumns; ++nt) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = nt * 8 + 2 * (lane & 3) + i;
          if (token >= a.m || row >= s.n) continue;
          float* y = static_cast<float*>(s.y) + static_cast<std::size_t>(token) * s.n + row;
          asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(y), "f"(acc[mt][nt][i]),
                       "f"(acc[mt][nt][i + 2])
                       : "memory");
        }
      }
    }
  }
};

struct PiecesByLastArriver {
  template <int kTiles, int kColumns>
  static __device__ __forceinline__ void finish(const device::LinearParams& a, int proc, int rb,
                                                int tile0, int lane,
                                                float (&acc)[kTiles][kColumns][4]) {
    const int p0 = a.part.first_proc(rb), p1 = a.part.last_proc(rb);
    if (p0 == p1) return device::store_piece<kTiles, kColumns>(a, rb, tile0, lane, acc);
    // A processor may have the last piece of one row block and the first of the next.
    const auto slot = [&](int p, int mt, int nt) {
      const std::size_t at = static_cast<std::size_t>(p) * 2 + (p == p0 ? 1 : 0);
      return reinterpret_cast<float4*>(a.partials) + ((at * 8 + tile0 + mt) * kColumns + nt) * 32 +
             lane;
    };
#pragma unroll
    for (int mt = 0; mt < kTiles; ++mt) {
#pragma unroll
      for (int nt = 0; nt < kColumns; ++nt) {
        const float(&c)[4] = acc[mt][nt];
        __stcg(slot(proc, mt, nt), make_float4(c[0], c[1], c[2], c[3]));
      }
    }
    __threadfence();
    __syncwarp();
    int* counter = reinterpret_cast<int*>(a.totals) + rb * 8 + tile0;
    int arrived = lane == 0 ? atomicAdd(counter, 1) : 0;
    arrived = __shfl_sync(0xffffffffu, arrived, 0);
    if (arrived != p1 - p0) return;
    __threadfence();
    if (lane == 0) *counter = 0;
    for (int p = p0; p <= p1; ++p) {
      if (p == proc) continue;
      float4 v[kTiles][kColumns];
#pragma unroll
      for (int mt = 0; mt < kTiles; ++mt) {
#pragma unroll
        for (int nt = 0; nt < kColumns; ++nt) v[mt][nt] = __ldcg(slot(p, mt, nt));
      }
#pragma unroll
      for (int mt = 0; mt < kTiles; ++mt) {
#pragma unroll
        for (int nt = 0; nt < kColumns; ++nt) {
          const float4& c = v[mt][nt];
          acc[mt][nt][0] += c.x, acc[mt][nt][1] += c.y;
          acc[mt][nt][2] += c.z, acc[mt][nt][3] += c.w;
        }
      }
    }
    device::store_piece<kTiles, kColumns>(a, rb, tile0, lane, acc);
  }
};

}  // namespace flotilla::cuda_check
