// Attention of spans of few tokens: one thread block per (span, KV head, chunk), so that a long
// context is read by many multiprocessors; then a merge of the chunks. Where every row has one
// token, what comes before attention is done here as well: every block prepares the queries that it
// uses, those with the last page also store key and value there.
#include "flotilla/backend/cuda/device/attention.cuh"
#include "flotilla/backend/cuda/device/heads.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"

namespace flotilla::backend::cuda {
namespace {

constexpr int kWarps = kChunkPages;  // a warp per page for scores, a share of the channels for sums

struct Stats {  // of one row in one chunk
  float max, sum;
};

template <int kDim>
struct DecodeShared {
  static constexpr int kPitch = kDim + 32;  // of query rows: no bank conflicts
  alignas(16) bf16 q[16 * kPitch];
  uint4 weights[kWarps][2][32];  // A fragments of each page
  float page_max[kWarps][16], page_sum[kWarps][16], factor[kWarps][16];
};

// Partials: values [span][tile][chunk][row][kDim], then stats [span][tile][chunk][row].
template <int kDim>
__global__ __launch_bounds__(kWarps * 32,
                             2) void decode_kernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(16) std::uint8_t raw[];
  auto& shared = *reinterpret_cast<DecodeShared<kDim>*>(raw);
  constexpr int kPitch = DecodeShared<kDim>::kPitch;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane >> 2, t = lane & 3;
  grid_launch_dependents();
  // Tables are constant during a step, and earlier keys are there: only what the step itself wrote
  // has to be waited for.
  const TokenSpan span = p.decode[blockIdx.x];
  const SequenceRow row = p.rows[span.row];
  const int heads = heads_per_tile(p.num_heads, p.num_kv_heads);
  const int first_head = blockIdx.y * heads;
  const int kv_head = first_head / (p.num_heads / p.num_kv_heads);
  const TileRows rows{heads, span.num_tokens * heads, row.first_position + span.first_token};
  const int last = rows.position0 + span.num_tokens - 1;
  const int lowest = p.window > 0 ? max(0, rows.position0 - p.window + 1) : 0;
  const int first_chunk = lowest / (kChunkPages * kPageTokens);
  const int chunk = first_chunk + blockIdx.z;
  const int first_page = chunk * kChunkPages;
  const int page = first_page + warp;
  const int begin = max(first_page, lowest / kPageTokens);
  const int end = min(first_page + kChunkPages, last / kPageTokens + 1);
  if (begin >= end) return grid_wait();  // the whole block
  const std::size_t head_at = static_cast<std::size_t>(kv_head) * 2 * kDim * kPageTokens;
  const bool mine = page >= begin && page < end;
  const bf16* keys = mine ? row.pages[page - row.first_block] + head_at : nullptr;
  // The pages of many blocks would push each other out of the cache before they are used.
  const bool at_once = gridDim.x * gridDim.y * gridDim.z <= 2u * p.multiprocessors;
  if (at_once && mine && lane == 0) bulk_prefetch(keys, kDim * kPageTokens * 4);

  // The values of the first pages are requested before anything is computed.
  constexpr int kTiles = kDim >= 8 * kWarps ? kDim / 8 / kWarps : 1;  // of 8 channels, per warp
  constexpr int kAheadPages = kTiles >= 8 ? 1 : kTiles >= 4 ? 2 : 4;
  const bool sums = warp * kTiles * 8 < kDim;
  uint4 x[kAheadPages][kTiles];
  const auto load_values = [&](int from, int first, int stop) {
#pragma unroll
    for (int i = 0; i < kAheadPages; ++i) {
      const int b = first_page + from + i;
      if (!sums || b < first || b >= stop) continue;
      const bf16* values = row.pages[b - row.first_block] + head_at + kDim * kPageTokens;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        x[i][n] = *reinterpret_cast<const uint4*>(
            values + ((warp * kTiles + n) * 8 + g) * kPageTokens + 8 * t);
      }
    }
  };
  const std::size_t token0 = static_cast<std::size_t>(row.first_row) + span.first_token;
  const int last_page = last / kPageTokens;
  const auto load_queries = [&](int from) {  // rows `from` to 15
    for (int i = from * kDim / 8 + threadIdx.x; i < 16 * kDim / 8; i += kWarps * 32) {
      const int r = i / (kDim / 8), c = i % (kDim / 8) * 8;
      uint4 v = make_uint4(0, 0, 0, 0);
      if (r < rows.num_rows) {
        v = *reinterpret_cast<const uint4*>(
            p.q + ((token0 + r / heads) * p.num_heads + first_head + r % heads) * kDim + c);
      }
      *reinterpret_cast<uint4*>(shared.q + r * kPitch + c) = v;
    }
  };
  if (p.prepares) {
    // Pages before the last are not written in this step.
    load_values(0, begin, min(end, last_page));
    load_queries(heads);  // there are none: zeros
    const KvStoreParams& in = p.inputs;
    Head<kDim> angles, weight;
    angles.load_angles(last, in.frequencies, lane);
    const bool stores = in.k != nullptr && end == last_page + 1;
    if (warp < heads || stores) weight.load_weight(warp < heads ? in.q_norm : in.k_norm, lane);
    bf16* to =
        const_cast<bf16*>(stores ? row.pages[last_page - row.first_block] + head_at : nullptr);
    grid_wait();
    for (int i = warp; i < heads + (stores ? 2 : 0); i += kWarps) {
      Head<kDim> v;
      if (i >= kWarps) weight.load_weight(i < heads ? in.q_norm : in.k_norm, lane);
      if (i < heads) {
        v.load(in.q + (token0 * p.num_heads + first_head + i) * kDim, lane);
        v.norm(&weight, in.eps);
        v.rotate(angles);
        v.store(shared.q + i * kPitch, lane);
        continue;
      }
      const std::size_t at = (token0 * p.num_kv_heads + kv_head) * kDim;
      v.load((i == heads ? in.k : in.v) + at, lane);
      if (i == heads) {
        v.norm(&weight, in.eps);
        v.rotate(angles);
        v.store(to + static_cast<std::size_t>(last % kPageTokens) * kDim, lane);
      } else {
        v.norm(nullptr, in.eps);
        v.store_column(to + kDim * kPageTokens + last % kPageTokens, kPageTokens, lane);
      }
    }
  } else {
    grid_wait();
    load_values(0, begin, end);
    load_queries(0);
  }
  __syncthreads();
  if (p.prepares) load_values(0, max(begin, last_page), end);

  float s[4][4] = {};
  float max0 = -INFINITY, max1 = -INFINITY;
  if (mine) {
    constexpr int kAhead = 4;  // steps of 32 channels whose keys are loaded together
    const bf16* q0 = shared.q + g * kPitch + 8 * t;
    bool seen[4];  // by some row; what none sees need not be read
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int key = page * kPageTokens + key_row(lane, j);
      seen[j] = key >= lowest && key <= last;
    }
#pragma unroll 1
    for (int d = 0; d < kDim; d += 32 * kAhead) {
      uint4 k[kAhead][4];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (d + 32 * i >= kDim) continue;
          k[i][j] = make_uint4(0, 0, 0, 0);
          if (!seen[j]) continue;
          k[i][j] =
              *reinterpret_cast<const uint4*>(keys + key_row(lane, j) * kDim + d + 32 * i + 8 * t);
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (d + 32 * i >= kDim) continue;
        const uint4 a = *reinterpret_cast<const uint4*>(q0 + d + 32 * i);
        const uint4 b = *reinterpret_cast<const uint4*>(q0 + 8 * kPitch + d + 32 * i);
#pragma unroll
        for (int j = 0; j < 4; ++j) score_steps(s[j], a, b, k[i][j]);
      }
    }
    mask_scores(s, p.scale * kLog2e, page, p.window, rows.position(g), rows.position(g + 8), lane,
                max0, max1);
  }
  if (t == 0) shared.page_max[warp][g] = max0, shared.page_max[warp][g + 8] = max1;
  __syncthreads();

  // The running maximum before and with this page.
  float before0 = -INFINITY, before1 = -INFINITY;
  for (int w = 0; w < warp; ++w) {
    before0 = fmaxf(before0, shared.page_max[w][g]);
    before1 = fmaxf(before1, shared.page_max[w][g + 8]);
  }
  const float base0 = exponent_base(fmaxf(before0, max0));
  const float base1 = exponent_base(fmaxf(before1, max1));
  if (mine) {
    float sum0, sum1;
    std::uint32_t a[2][4];
    exponentiate(s, base0, base1, sum0, sum1, a);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      shared.weights[warp][i][lane] = make_uint4(a[i][0], a[i][1], a[i][2], a[i][3]);
    if (t == 0) {
      shared.page_sum[warp][g] = sum0, shared.page_sum[warp][g + 8] = sum1;
      shared.factor[warp][g] = exp2_fast(before0 - base0);
      shared.factor[warp][g + 8] = exp2_fast(before1 - base1);
    }
  }
  __syncthreads();

  // Sums over the chunk's keys.
  if (!sums) return;
  float v[kTiles][4] = {};
#pragma unroll 1
  for (int from = 0; from < kWarps; from += kAheadPages) {
    if (from > 0) load_values(from, begin, end);
#pragma unroll
    for (int i = 0; i < kAheadPages; ++i) {
      const int w = from + i, b = first_page + w;
      if (b < begin || b >= end) continue;
      const float f0 = shared.factor[w][g], f1 = shared.factor[w][g + 8];
      const uint4 a0 = shared.weights[w][0][lane], a1 = shared.weights[w][1][lane];
      const std::uint32_t step0[4] = {a0.x, a0.y, a0.z, a0.w};
      const std::uint32_t step1[4] = {a1.x, a1.y, a1.z, a1.w};
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        v[n][0] *= f0, v[n][1] *= f0, v[n][2] *= f1, v[n][3] *= f1;
        mma(v[n], step0, x[i][n].x, x[i][n].y);
        mma(v[n], step1, x[i][n].z, x[i][n].w);
      }
    }
  }
  float chunk_max[2] = {-INFINITY, -INFINITY}, chunk_sum[2] = {};
  for (int w = begin - first_page; w < end - first_page; ++w) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      chunk_max[i] = fmaxf(chunk_max[i], shared.page_max[w][g + 8 * i]);
      chunk_sum[i] = fmaf(chunk_sum[i], shared.factor[w][g + 8 * i], shared.page_sum[w][g + 8 * i]);
    }
  }
  const std::size_t partial =
      (static_cast<std::size_t>(blockIdx.x) * gridDim.y + blockIdx.y) * p.max_chunks + blockIdx.z;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = g + 8 * i;
    if (r >= rows.num_rows) continue;
    if (p.max_chunks == 1) {
      float max = -INFINITY, sum = 0.0f;
      const Merge f = merge_chunk(max, sum, chunk_max[i], chunk_sum[i]);
      bf16* out = p.out + ((token0 + r / heads) * p.num_heads + first_head + r % heads) * kDim;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        *reinterpret_cast<std::uint32_t*>(out + (warp * kTiles + n) * 8 + 2 * t) =
            pack_bf16(merged(f, 0.0f, v[n][2 * i]) / sum, merged(f, 0.0f, v[n][2 * i + 1]) / sum);
      }
      continue;
    }
    float* to = p.partials + (partial * p.rows_per_tile + r) * kDim;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      *reinterpret_cast<float2*>(to + (warp * kTiles + n) * 8 + 2 * t) =
          make_float2(v[n][2 * i], v[n][2 * i + 1]);
    }
    if (warp == 0 && t == 0) {
      Stats* stats =
          reinterpret_cast<Stats*>(p.partials + static_cast<std::size_t>(gridDim.x) * gridDim.y *
                                                    p.max_chunks * p.rows_per_tile * kDim);
      stats[partial * p.rows_per_tile + r] = {chunk_max[i], chunk_sum[i]};
    }
  }
}

// One thread block per (span, query head of the tile's rows): merges the chunks of a row.
template <int kDim>
__global__ void merge_kernel(const __grid_constant__ AttentionParams p, int num_tiles) {
  grid_launch_dependents();
  const TokenSpan span = p.decode[blockIdx.x];
  const SequenceRow row = p.rows[span.row];
  const int heads = heads_per_tile(p.num_heads, p.num_kv_heads);
  const int tile = blockIdx.y, r = blockIdx.z;
  grid_wait();
  if (r >= span.num_tokens * heads) return;
  const int position0 = row.first_position + span.first_token;
  const int last = position0 + span.num_tokens - 1;
  const int lowest = p.window > 0 ? max(0, position0 - p.window + 1) : 0;
  constexpr int kChunk = kChunkPages * kPageTokens;
  const int chunks = last / kChunk - lowest / kChunk + 1;
  const std::size_t first =
      (static_cast<std::size_t>(blockIdx.x) * num_tiles + tile) * p.max_chunks;
  const Stats* stats = reinterpret_cast<const Stats*>(
      p.partials +
      static_cast<std::size_t>(p.num_decode) * num_tiles * p.max_chunks * p.rows_per_tile * kDim);
  float max = -INFINITY, sum = 0.0f, v = 0.0f;
#pragma unroll 4
  for (int c = 0; c < chunks; ++c) {
    const Stats s = stats[(first + c) * p.rows_per_tile + r];
    const float value = p.partials[((first + c) * p.rows_per_tile + r) * kDim + threadIdx.x];
    if (s.max == -INFINITY) continue;
    const Merge f = merge_chunk(max, sum, s.max, s.sum);
    v = merged(f, v, value);
  }
  const std::size_t token = static_cast<std::size_t>(row.first_row) + span.first_token + r / heads;
  p.out[(token * p.num_heads + tile * heads + r % heads) * kDim + threadIdx.x] =
      __float2bfloat16(v / sum);
}

template <int kDim>
cudaError_t run(const AttentionParams& p, cudaStream_t stream) {
  const int heads = heads_per_tile(p.num_heads, p.num_kv_heads);
  const int tiles = p.num_heads / heads;
  const cudaError_t scored =
      launch(decode_kernel<kDim>,
             dim3(static_cast<unsigned>(p.num_decode), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(p.max_chunks)),
             kWarps * 32, sizeof(DecodeShared<kDim>), stream, p);
  if (scored != cudaSuccess || p.max_chunks == 1) return scored;
  return launch(merge_kernel<kDim>,
                dim3(static_cast<unsigned>(p.num_decode), static_cast<unsigned>(tiles),
                     static_cast<unsigned>(p.rows_per_tile)),
                kDim, 0, stream, p, tiles);
}

}  // namespace

cudaError_t launch_attention_decode(const AttentionParams& p, cudaStream_t stream) {
  switch (p.head_dim) {
    case 32:
      return run<32>(p, stream);
    case 64:
      return run<64>(p, stream);
    case 128:
      return run<128>(p, stream);
    case 256:
      return run<256>(p, stream);
    case 512:
      return run<512>(p, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace flotilla::backend::cuda
