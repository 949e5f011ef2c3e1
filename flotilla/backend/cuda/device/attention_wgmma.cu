// Attention of spans of many tokens for heads of 256 and 512 channels: as attention_prefill.cu,
// with wgmma. Its sums are those of mma.sync: a step adds the same 16 products, in whichever
// places.
//
// A thread block takes 128 query rows of 256 channels or 64 of 512, and walks over pairs of pages.
// Two warpgroups multiply: with 256 channels each has 64 rows; with 512 both have the same 64,
// compute the same scores, and sum half of the channels of V each. The warps of a third bring keys
// and values. In shared memory, in rows of 128 bytes with the 128-byte swizzle:
//   queries   [kDim / 64][64 rows][64 channels]
//   keys      [4][64 keys][64 channels], 256 channels of both pages, key 8t + 2j + e of a page in
//             row 8j + 2t + e, so that the scores of a lane are those of its keys
//   values    [256 channels][64 keys]
// Of every 32 channels, the 16 of a step of the decode kernel lie together, and so do the keys.
#include <algorithm>

#include "flotilla/backend/cuda/device/attention.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/wgmma.cuh"

namespace flotilla::backend::cuda {
namespace {

constexpr int kMultipliers = 256, kLoaders = 64;  // threads; loaders of keys, and of values
constexpr int kThreads = kMultipliers + 2 * kLoaders;
constexpr int kSlots = 2;  // of keys, and of values
constexpr int kSlotBytes = 64 * 256 * 2;
constexpr int kQueryBytes = 64 * 1024;
constexpr int kKeysAt = kQueryBytes, kValuesAt = kKeysAt + kSlots * kSlotBytes;
constexpr int kBarsAt = kValuesAt + kSlots * kSlotBytes;
constexpr int kShared = kBarsAt + 4 * kSlots * 8 + 1024;

// Byte of channel granule c (4 channels) in a row of 64 channels: of every 32, even granules first.
__device__ __forceinline__ int granule_at(int c) {
  const int u = c & 7;
  return (c >> 3) * 64 + ((u & 1) * 4 + (u >> 1)) * 8;
}
// With the swizzle: byte `at` of row `row`.
__device__ __forceinline__ std::uint32_t place(int row, int at) {
  return static_cast<std::uint32_t>(row * 128 + ((at >> 4 ^ (row & 7)) << 4) + (at & 15));
}

template <int kBytes>
__device__ __forceinline__ void async_copy(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes)
               : "memory");
}
// The copies of this thread so far count as its arrival once they are done.
__device__ __forceinline__ void arrive_after_copies(std::uint32_t bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void sync_multipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kMultipliers) : "memory");
}

// What a thread block works on: one span of one group of heads.
template <int kDim>
struct Item {
  TileRows rows;
  SequenceRow row;
  int first_head, begin, end;  // pages
  std::size_t token0, head_at;

  __device__ Item(const AttentionParams& p, int index) {
    const int heads = heads_per_tile(p.num_heads, p.num_kv_heads);
    const int tiles = p.num_heads / heads;
    // The last spans of a row see the most keys: they go first.
    const TokenSpan span = p.prefill[p.num_prefill - 1 - index / tiles];
    row = p.rows[span.row];
    first_head = index % tiles * heads;
    const int kv_head = first_head / (p.num_heads / p.num_kv_heads);
    rows = {heads, span.num_tokens * heads, row.first_position + span.first_token};
    const int last = rows.position0 + span.num_tokens - 1;
    const int lowest = p.window > 0 ? max(0, rows.position0 - p.window + 1) : 0;
    begin = lowest / kPageTokens, end = last / kPageTokens + 1;
    token0 = static_cast<std::size_t>(row.first_row) + span.first_token;
    head_at = static_cast<std::size_t>(kv_head) * 2 * kDim * kPageTokens;
  }
  __device__ int first_pair() const { return begin / 2; }
  __device__ int last_pair() const { return (end - 1) / 2; }
  __device__ bool has(int page) const { return page >= begin && page < end; }
  __device__ const bf16* page(int i) const { return row.pages[i - row.first_block] + head_at; }
};

// Barriers of slot s, which is filled for the n-th time (from 0) by entry s + n * kSlots.
struct Slots {
  std::uint32_t bars, data;
  __device__ std::uint32_t full(int entry) const { return bars + 8 * (entry % kSlots); }
  __device__ std::uint32_t empty(int entry) const { return bars + 8 * (kSlots + entry % kSlots); }
  __device__ std::uint32_t at(int entry) const { return data + entry % kSlots * kSlotBytes; }
  __device__ void wait_full(int entry) const { mbar_wait(full(entry), entry / kSlots & 1); }
  __device__ void wait_empty(int entry) const { mbar_wait(empty(entry), (entry / kSlots & 1) ^ 1); }
};

template <int kDim>
__device__ void load_keys(const AttentionParams& p, int num_items, const Slots& slots, int thread) {
  static_assert(kLoaders == 64);
  // One granule of every key.
  const std::uint32_t tile = thread / 16 * 64 * 128;
  const int at = granule_at(thread % 16);
  int entry = 0;
  for (int i = blockIdx.x; i < num_items; i += gridDim.x) {
    const Item<kDim> item(p, i);
    for (int pair = item.first_pair(); pair <= item.last_pair(); ++pair) {
#pragma unroll 1
      for (int half = 0; half < kDim / 256; ++half, ++entry) {
        slots.wait_empty(entry);
        const std::uint32_t to = slots.at(entry) + tile;
#pragma unroll 1
        for (int h = 0; h < 2; ++h) {
          if (!item.has(2 * pair + h)) continue;
          const bf16* from = item.page(2 * pair + h) + half * 256 + thread * 4;
#pragma unroll
          for (int n = 0; n < kPageTokens; ++n) {
            const int key = n % 8 / 2 * 8 + n / 8 * 2 + n % 2;
            async_copy<8>(to + h * (kPageTokens * 128) + place(n, at), from + key * kDim);
          }
        }
        arrive_after_copies(slots.full(entry));
      }
    }
  }
}

template <int kDim>
__device__ void load_values(const AttentionParams& p, int num_items, const Slots& slots,
                            int thread) {
  // One pair of keys of every fourth channel; the two halves of a warp are four rows apart, which
  // uses all banks.
  const int position = thread % 16, t = position % 4;
  const int pair_of_keys = 4 * t + position / 8 * 2 + position / 4 % 2;
  const int row0 = thread / 32 * 128 + thread / 16 % 2 * 4;
  int entry = 0;
  for (int i = blockIdx.x; i < num_items; i += gridDim.x) {
    const Item<kDim> item(p, i);
    for (int pair = item.first_pair(); pair <= item.last_pair(); ++pair) {
#pragma unroll 1
      for (int half = 0; half < kDim / 256; ++half, ++entry) {
        slots.wait_empty(entry);
        const std::uint32_t to = slots.at(entry);
#pragma unroll 1
        for (int h = 0; h < 2; ++h) {
          if (!item.has(2 * pair + h)) continue;
          const bf16* from = item.page(2 * pair + h) + kDim * kPageTokens +
                             (half * 256 + row0) * kPageTokens + pair_of_keys * 2;
          const int at = h * 64 + position * 4;
#pragma unroll 4
          for (int q = 0; q < 16; ++q) {
#pragma unroll
            for (int b = 0; b < 4; ++b) {
              const int r = q * 8 + b;
              async_copy<4>(to + place(row0 + r, at), from + r * kPageTokens);
            }
          }
        }
        arrive_after_copies(slots.full(entry));
      }
    }
  }
}

template <int kDim>
__global__ __launch_bounds__(kThreads, 1) void kernel(const __grid_constant__ AttentionParams p,
                                                      int num_items) {
  extern __shared__ std::uint8_t raw[];
  constexpr int kHalves = kDim / 256;
  constexpr int kRowsOfBlock = 128 / kHalves;
  const std::uint32_t base = (smem_u32(raw) + 1023u) & ~1023u;
  const Slots keys{base + kBarsAt, base + kKeysAt};
  const Slots values{base + kBarsAt + 2 * kSlots * 8, base + kValuesAt};
  if (threadIdx.x < kSlots) {
    const int s = static_cast<int>(threadIdx.x);
    mbar_init(keys.full(s), kLoaders);
    mbar_init(keys.empty(s), kMultipliers / 32);
    mbar_init(values.full(s), kLoaders);
    mbar_init(values.empty(s), kMultipliers / 32 / kHalves);
    mbar_init_fence();
  }
  grid_launch_dependents();
  grid_wait();
  __syncthreads();

  if (threadIdx.x >= kMultipliers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    const int thread = static_cast<int>(threadIdx.x) - kMultipliers;
    if (thread < kLoaders) {
      load_keys<kDim>(p, num_items, keys, thread);
    } else {
      load_values<kDim>(p, num_items, values, thread - kLoaders);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const int g = lane >> 2, t = lane & 3;
    const int half = kHalves == 1 ? 0 : group;  // of the channels of V
    const int row0 = (kHalves == 1 ? group * 64 : 0) + warp * 16;
    const std::uint32_t queries = base + (kHalves == 1 ? group * 64 * kDim * 2 : 0);
    float4* totals = reinterpret_cast<float4*>(p.totals) +
                     static_cast<std::size_t>(blockIdx.x) * 32 * kMultipliers + threadIdx.x;
    int entry = 0, value_entry = half;
    for (int i = blockIdx.x; i < num_items; i += gridDim.x) {
      const Item<kDim> item(p, i);
      const TileRows& rows = item.rows;
      sync_multipliers();  // the previous item is done with the queries
      for (int j = threadIdx.x; j < kRowsOfBlock * kDim / 8; j += kMultipliers) {
        const int r = j / (kDim / 8), c = j % (kDim / 8) * 2;  // granules c and c + 1
        uint4 v = make_uint4(0, 0, 0, 0);
        if (r < rows.num_rows) {
          v = *reinterpret_cast<const uint4*>(
              p.q +
              ((item.token0 + r / rows.heads) * p.num_heads + item.first_head + r % rows.heads) *
                  kDim +
              c * 4);
        }
        const std::uint32_t to = base + r / 64 * (64 * kDim * 2) + c / 16 * (64 * 128);
        shared_store8(to + place(r % 64, granule_at(c % 16)), v.x, v.y);
        shared_store8(to + place(r % 64, granule_at(c % 16 + 1)), v.z, v.w);
      }
      fence_async_shared();
      sync_multipliers();

      const int position[2] = {rows.position(row0 + g), rows.position(row0 + g + 8)};
      // Of this warp's rows, all of which exist: whole pages in this range need no mask.
      const bool all_exist = row0 + 16 <= rows.num_rows;
      const int sees_to = all_exist ? rows.position(row0) : -1;
      const int sees_from = p.window > 0 && all_exist ? rows.position(row0 + 15) - p.window : -1;
      const float scale = p.scale * kLog2e;
      float v[128];
      float m[2] = {-INFINITY, -INFINITY}, s[2] = {};
      float total_max[2] = {-INFINITY, -INFINITY}, total_sum[2] = {};
      bool has_totals = false;
#pragma unroll
      for (int n = 0; n < 128; ++n) v[n] = 0.0f;
      std::uint32_t a[2][2][4];
      float scores[32];
      const auto compute_scores = [&]() __attribute__((always_inline)) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) keys.wait_full(entry + h);
        fence_async_shared();
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
#pragma unroll
          for (int d = 0; d < 16; ++d) {
            const std::uint64_t q =
                wgmma_descriptor(queries + (h * 4 + d / 4) * (64 * 128)) + 2 * (d % 4);
            const std::uint64_t k =
                wgmma_descriptor(keys.at(entry + h) + d / 4 * (64 * 128)) + 2 * (d % 4);
            if (h + d == 0) {
              Wgmma<64>::start_shared(scores, q, k);
            } else {
              Wgmma<64>::run_shared(scores, q, k);
            }
          }
        }
        wgmma_commit();
        wgmma_wait<0>();
        if (lane == 0) {
#pragma unroll
          for (int h = 0; h < kHalves; ++h) mbar_arrive(keys.empty(entry + h));
        }
        entry += kHalves;
      };

#pragma unroll 1
      for (int pair = item.first_pair(); pair <= item.last_pair(); ++pair) {
        compute_scores();
        values.wait_full(value_entry);
        fence_async_shared();
        const std::uint64_t rows_of_v = wgmma_descriptor(values.at(value_entry));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int page = 2 * pair + h;
          if (!item.has(page)) continue;
          float(&score)[4][4] = *reinterpret_cast<float(*)[4][4]>(scores + 16 * h);
          float max0, max1, sum0, sum1;
          if ((page + 1) * kPageTokens - 1 <= sees_to && page * kPageTokens > sees_from) {
            scale_scores(score, scale, max0, max1);
          } else {
            mask_scores(score, scale, page, p.window, position[0], position[1], lane, max0, max1);
          }
          const float base0 = exponent_base(fmaxf(m[0], max0));
          const float base1 = exponent_base(fmaxf(m[1], max1));
          exponentiate(score, base0, base1, sum0, sum1, a[h]);
          const float f0 = exp2_fast(m[0] - base0), f1 = exp2_fast(m[1] - base1);
          m[0] = fmaxf(m[0], max0), m[1] = fmaxf(m[1], max1);
          s[0] = fmaf(s[0], f0, sum0), s[1] = fmaf(s[1], f1, sum1);
          wgmma_wait<0>();
          if (__any_sync(0xffffffffu, f0 != 1.0f || f1 != 1.0f)) {
#pragma unroll
            for (int n = 0; n < 32; ++n) {
              v[4 * n] *= f0, v[4 * n + 1] *= f0, v[4 * n + 2] *= f1, v[4 * n + 3] *= f1;
            }
          }
          wgmma_fence();
          Wgmma<256>::run(v, a[h][0], rows_of_v + 4 * h, 1);
          Wgmma<256>::run(v, a[h][1], rows_of_v + 4 * h + 2, 1);
          wgmma_commit();
        }
        const bool ends = pair == item.last_pair();
        wgmma_wait<0>();
        if (lane == 0) mbar_arrive(values.empty(value_entry));
        value_entry += kHalves;
        if ((2 * pair + 2) % kChunkPages != 0 && !ends) continue;
        // The chunk is complete: add it to the totals, which wait in L2.
        const Merge merge0 = merge_chunk(total_max[0], total_sum[0], m[0], s[0]);
        const Merge merge1 = merge_chunk(total_max[1], total_sum[1], m[1], s[1]);
        if (has_totals) {
          constexpr int kAtOnce = 8;
#pragma unroll
          for (int n0 = 0; n0 < 32; n0 += kAtOnce) {
            float4 total[kAtOnce];
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) total[n] = __ldcg(totals + (n0 + n) * kMultipliers);
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
              float* c = v + 4 * (n0 + n);
              c[0] = merged(merge0, total[n].x, c[0]), c[1] = merged(merge0, total[n].y, c[1]);
              c[2] = merged(merge1, total[n].z, c[2]), c[3] = merged(merge1, total[n].w, c[3]);
            }
          }
        } else {
#pragma unroll
          for (int n = 0; n < 32; ++n) {
            float* c = v + 4 * n;
            c[0] = merged(merge0, 0.0f, c[0]), c[1] = merged(merge0, 0.0f, c[1]);
            c[2] = merged(merge1, 0.0f, c[2]), c[3] = merged(merge1, 0.0f, c[3]);
          }
        }
        if (!ends) {
#pragma unroll
          for (int n = 0; n < 32; ++n) {
            __stcg(totals + n * kMultipliers,
                   make_float4(v[4 * n], v[4 * n + 1], v[4 * n + 2], v[4 * n + 3]));
            v[4 * n] = v[4 * n + 1] = v[4 * n + 2] = v[4 * n + 3] = 0.0f;
          }
        }
        has_totals = true;
        m[0] = m[1] = -INFINITY;
        s[0] = s[1] = 0.0f;
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int r = row0 + g + 8 * e;
        if (r >= rows.num_rows) continue;
        bf16* out =
            p.out +
            ((item.token0 + r / rows.heads) * p.num_heads + item.first_head + r % rows.heads) *
                kDim +
            half * 256 + 2 * t;
#pragma unroll
        for (int n = 0; n < 32; ++n) {
          *reinterpret_cast<std::uint32_t*>(out + n * 8) =
              pack_bf16(v[4 * n + 2 * e] / total_sum[e], v[4 * n + 2 * e + 1] / total_sum[e]);
        }
      }
    }
  }
}

template <int kDim>
cudaError_t run(const AttentionParams& p, cudaStream_t stream) {
  const int items = p.num_prefill * attention_tiles(p.num_heads, p.num_kv_heads);
  return launch(kernel<kDim>, dim3(static_cast<unsigned>(std::min(items, p.multiprocessors))),
                kThreads, kShared, stream, p, items);
}

}  // namespace

cudaError_t launch_attention_wgmma(const AttentionParams& p, cudaStream_t stream) {
  return p.head_dim == 256 ? run<256>(p, stream) : run<512>(p, stream);
}

}  // namespace flotilla::backend::cuda
