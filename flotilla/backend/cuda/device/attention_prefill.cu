// Attention of spans of many tokens, for heads of up to 128 channels: tiles of query rows walk over
// the pages, which pass through shared memory. The arithmetic is that of the decode kernel.
#include <algorithm>

#include "flotilla/backend/cuda/device/attention.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"

namespace flotilla::backend::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kStages = 2;

constexpr int kTileRows = 16 * kWarps;

template <int kDim>
struct PrefillShared {
  static constexpr int kPitch = kDim + 32;  // of query and key rows: no bank conflicts
  alignas(16) bf16 q[kTileRows * kPitch];
  alignas(16) bf16 k[kStages][kPageTokens * kPitch];
  alignas(16) bf16 v[kStages][kDim * kPageTokens];
};

template <int kDim>
__global__ __launch_bounds__(kThreads,
                             1) void prefill_kernel(const __grid_constant__ AttentionParams p,
                                                    int num_items) {
  extern __shared__ __align__(16) std::uint8_t raw[];
  auto& shared = *reinterpret_cast<PrefillShared<kDim>*>(raw);
  constexpr int kPitch = PrefillShared<kDim>::kPitch;
  constexpr int kTiles = kDim / 8;  // of 8 channels
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
  const int row0 = warp * 16;
  const int heads = heads_per_tile(p.num_heads, p.num_kv_heads);
  const int tiles = p.num_heads / heads;
  float4* totals = reinterpret_cast<float4*>(p.totals) +
                   static_cast<std::size_t>(blockIdx.x) * kTiles * kThreads + threadIdx.x;
  grid_launch_dependents();
  grid_wait();

  for (int item = blockIdx.x; item < num_items; item += gridDim.x) {
    // The last spans of a row see the most keys: they go first.
    const TokenSpan span = p.prefill[p.num_prefill - 1 - item / tiles];
    const SequenceRow row = p.rows[span.row];
    const int first_head = item % tiles * heads;
    const int kv_head = first_head / (p.num_heads / p.num_kv_heads);
    const TileRows rows{heads, span.num_tokens * heads, row.first_position + span.first_token};
    const int last = rows.position0 + span.num_tokens - 1;
    const int lowest = p.window > 0 ? max(0, rows.position0 - p.window + 1) : 0;
    const int begin = lowest / kPageTokens, end = last / kPageTokens + 1;
    const std::size_t head_at = static_cast<std::size_t>(kv_head) * 2 * kDim * kPageTokens;

    auto load_page = [&](int page, int stage) {
      const bf16* from = row.pages[page - row.first_block] + head_at;
      for (int i = threadIdx.x; i < kPageTokens * kDim / 8; i += kThreads) {
        const int r = i / (kDim / 8), c = i % (kDim / 8) * 8;
        async_copy16(smem_u32(shared.k[stage] + r * kPitch + c), from + i * 8);
        async_copy16(smem_u32(shared.v[stage] + i * 8), from + kPageTokens * kDim + i * 8);
      }
      async_commit();
    };
    __syncthreads();  // the previous item is done with shared memory
    load_page(begin, 0);
    const std::size_t token0 = static_cast<std::size_t>(row.first_row) + span.first_token;
    for (int i = threadIdx.x; i < kTileRows * kDim / 8; i += kThreads) {
      const int r = i / (kDim / 8), c = i % (kDim / 8) * 8;
      uint4 v = make_uint4(0, 0, 0, 0);
      if (r < rows.num_rows) {
        v = *reinterpret_cast<const uint4*>(
            p.q + ((token0 + r / heads) * p.num_heads + first_head + r % heads) * kDim + c);
      }
      *reinterpret_cast<uint4*>(shared.q + r * kPitch + c) = v;
    }

    const int position[2] = {rows.position(row0 + g), rows.position(row0 + g + 8)};
    const bf16* q0 = shared.q + (row0 + g) * kPitch + 8 * t;
    float v[kTiles][4];
    float m[2] = {-INFINITY, -INFINITY}, s[2] = {};
    float total_max[2] = {-INFINITY, -INFINITY}, total_sum[2] = {};
    bool has_totals = false;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) v[n][0] = v[n][1] = v[n][2] = v[n][3] = 0.0f;

    for (int page = begin; page < end; ++page) {
      const int stage = (page - begin) % kStages;
      async_wait<0>();
      __syncthreads();
      if (page + 1 < end) load_page(page + 1, stage ^ 1);
      const bf16* keys = shared.k[stage];
      float score[4][4] = {};
#pragma unroll 4
      for (int d = 0; d < kDim; d += 32) {
        const uint4 a = *reinterpret_cast<const uint4*>(q0 + d);
        const uint4 b = *reinterpret_cast<const uint4*>(q0 + 8 * kPitch + d);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          score_steps(
              score[j], a, b,
              *reinterpret_cast<const uint4*>(keys + key_row(lane, j) * kPitch + d + 8 * t));
        }
      }
      float max0, max1, sum0, sum1;
      mask_scores(score, p.scale * kLog2e, page, p.window, position[0], position[1], lane, max0,
                  max1);
      const float base0 = exponent_base(fmaxf(m[0], max0));
      const float base1 = exponent_base(fmaxf(m[1], max1));
      std::uint32_t a[2][4];
      exponentiate(score, base0, base1, sum0, sum1, a);
      const float f0 = exp2_fast(m[0] - base0), f1 = exp2_fast(m[1] - base1);
      m[0] = fmaxf(m[0], max0), m[1] = fmaxf(m[1], max1);
      s[0] = fmaf(s[0], f0, sum0), s[1] = fmaf(s[1], f1, sum1);
      const bf16* values = shared.v[stage] + g * kPageTokens + 8 * t;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 x = *reinterpret_cast<const uint4*>(values + n * 8 * kPageTokens);
        v[n][0] *= f0, v[n][1] *= f0, v[n][2] *= f1, v[n][3] *= f1;
        mma(v[n], a[0], x.x, x.y);
        mma(v[n], a[1], x.z, x.w);
      }
      const bool ends = page + 1 == end;
      if ((page + 1) % kChunkPages != 0 && !ends) continue;
      // The chunk is complete: add it to the totals, which wait in L2.
      const Merge merge0 = merge_chunk(total_max[0], total_sum[0], m[0], s[0]);
      const Merge merge1 = merge_chunk(total_max[1], total_sum[1], m[1], s[1]);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (has_totals) total = __ldcg(totals + n * kThreads);
        v[n][0] = merged(merge0, total.x, v[n][0]), v[n][1] = merged(merge0, total.y, v[n][1]);
        v[n][2] = merged(merge1, total.z, v[n][2]), v[n][3] = merged(merge1, total.w, v[n][3]);
        if (ends) continue;
        __stcg(totals + n * kThreads, make_float4(v[n][0], v[n][1], v[n][2], v[n][3]));
        v[n][0] = v[n][1] = v[n][2] = v[n][3] = 0.0f;
      }
      has_totals = true;
      m[0] = m[1] = -INFINITY;
      s[0] = s[1] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = row0 + g + 8 * i;
      if (r >= rows.num_rows) continue;
      bf16* out =
          p.out + ((token0 + r / heads) * p.num_heads + first_head + r % heads) * kDim + 2 * t;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        *reinterpret_cast<std::uint32_t*>(out + n * 8) =
            pack_bf16(v[n][2 * i] / total_sum[i], v[n][2 * i + 1] / total_sum[i]);
      }
    }
  }
}

template <int kDim>
cudaError_t run(const AttentionParams& p, cudaStream_t stream) {
  const int items = p.num_prefill * (p.num_heads / heads_per_tile(p.num_heads, p.num_kv_heads));
  return launch(prefill_kernel<kDim>,
                dim3(static_cast<unsigned>(std::min(items, p.multiprocessors))), kThreads,
                sizeof(PrefillShared<kDim>), stream, p, items);
}

}  // namespace

bool attention_supports(int head_dim) {
  return head_dim == 32 || head_dim == 64 || head_dim == 128 || head_dim == 256 || head_dim == 512;
}
int attention_tiles(int num_heads, int num_kv_heads) {
  return num_heads / heads_per_tile(num_heads, num_kv_heads);
}
int attention_decode_tile(int num_heads, int num_kv_heads) {
  return 16 / heads_per_tile(num_heads, num_kv_heads);
}
int attention_prefill_tile(int num_heads, int num_kv_heads, int head_dim) {
  const int rows = head_dim > 256 ? kTileRows / 2 : kTileRows;
  return rows / heads_per_tile(num_heads, num_kv_heads);
}
std::size_t attention_partial_bytes(const AttentionParams& p) {
  const auto tiles =
      static_cast<std::size_t>(p.num_heads / heads_per_tile(p.num_heads, p.num_kv_heads));
  return static_cast<std::size_t>(p.num_decode) * tiles * static_cast<std::size_t>(p.max_chunks) *
         static_cast<std::size_t>(p.rows_per_tile) * (static_cast<std::size_t>(p.head_dim) * 4 + 8);
}
std::size_t attention_total_bytes(int multiprocessors) {
  return static_cast<std::size_t>(multiprocessors) * kThreads * 32 * 16;
}

cudaError_t launch_attention_prefill(const AttentionParams& p, cudaStream_t stream) {
  switch (p.head_dim) {
    case 32:
      return run<32>(p, stream);
    case 64:
      return run<64>(p, stream);
    case 128:
      return run<128>(p, stream);
    case 256:
    case 512:
      return launch_attention_wgmma(p, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t attention(const AttentionParams& p, cudaStream_t stream) {
  if (p.num_decode > 0) {
    const cudaError_t error = launch_attention_decode(p, stream);
    if (error != cudaSuccess) return error;
  }
  return p.num_prefill > 0 ? launch_attention_prefill(p, stream) : cudaSuccess;
}

}  // namespace flotilla::backend::cuda
