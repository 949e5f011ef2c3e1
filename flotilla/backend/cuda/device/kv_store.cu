// Everything between the projections and attention: norms of q, k and v, rotation of q and k, and
// the write of k and v into their pages.
#include <algorithm>

#include "flotilla/backend/cuda/device/heads.cuh"
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"

namespace flotilla::backend::cuda {
namespace {

constexpr int kMaxWarps = 8;

// One thread block per (span of tokens within a page, head); one warp per token. Heads beyond the
// query heads are KV heads.
template <int kDim>
__global__ __launch_bounds__(kMaxWarps *
                             32) void kv_store_kernel(const __grid_constant__ KvStoreParams p) {
  extern __shared__ bf16 values[];  // [kDim][kPageTokens + 2], the page's V of this head
  constexpr int kPitch = kPageTokens + 2;
  grid_launch_dependents();
  // Tables, weights and angles are constant during a step: they are ready before the projections.
  const TokenSpan span = p.spans[blockIdx.x];
  const SequenceRow row = p.rows[span.row];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int query_heads = p.q == nullptr ? 0 : p.num_heads;
  const bool is_query = static_cast<int>(blockIdx.y) < query_heads;
  Head<kDim> weight, angles;
  const auto angles_of = [&](int i) {
    angles.load_angles(row.first_position + span.first_token + i, p.frequencies, lane);
  };
  if (p.prepare) {
    weight.load_weight(is_query ? p.q_norm : p.k_norm, lane);
    angles_of(warp);
  }
  const int position = row.first_position + span.first_token, lane0 = position % kPageTokens;
  const int kv_head = blockIdx.y - query_heads;
  bf16* keys = nullptr;
  if (!is_query) {
    keys = const_cast<bf16*>(row.pages[position / kPageTokens - row.first_block]) +
           static_cast<std::size_t>(kv_head) * 2 * kDim * kPageTokens;
  }
  grid_wait();
  if (is_query) {
    for (int i = warp; i < span.num_tokens; i += warps) {
      const int t = span.first_token + i;
      bf16* at =
          p.q + (static_cast<std::size_t>(row.first_row + t) * p.num_heads + blockIdx.y) * kDim;
      Head<kDim> q;
      q.load(at, lane);
      if (i >= warps) angles_of(i);
      q.norm(&weight, p.eps);
      q.rotate(angles);
      q.store(at, lane);
    }
    return;
  }
  bf16* to = keys + static_cast<std::size_t>(kDim) * kPageTokens;
  for (int i = warp; i < span.num_tokens; i += warps) {
    const int t = span.first_token + i;
    const std::size_t at =
        (static_cast<std::size_t>(row.first_row + t) * p.num_kv_heads + kv_head) * kDim;
    Head<kDim> k, v;
    k.load(p.k + at, lane);
    v.load(p.v + at, lane);
    if (p.prepare) {
      if (i >= warps) angles_of(i);
      k.norm(&weight, p.eps);
      k.rotate(angles);
      v.norm(nullptr, p.eps);
    }
    k.store(keys + static_cast<std::size_t>(lane0 + i) * kDim, lane);
#pragma unroll
    for (int j = 0; j < Head<kDim>::kPairs; ++j) {
      if (!Head<kDim>::has(lane)) continue;
      const int low = lane + 32 * j, high = low + kDim / 2;
      if (span.num_tokens == 1) {
        to[low * kPageTokens + lane0] = __float2bfloat16(v.low[j]);
        to[high * kPageTokens + lane0] = __float2bfloat16(v.high[j]);
      } else {
        values[low * kPitch + i] = __float2bfloat16(v.low[j]);
        values[high * kPitch + i] = __float2bfloat16(v.high[j]);
      }
    }
  }
  if (span.num_tokens == 1) return;
  __syncthreads();
  for (int i = threadIdx.x; i < kDim * kPageTokens; i += blockDim.x) {
    const int d = i / kPageTokens, j = i % kPageTokens;
    if (j < span.num_tokens) to[d * kPageTokens + lane0 + j] = values[d * kPitch + j];
  }
}

template <int kDim>
cudaError_t run(const KvStoreParams& p, cudaStream_t stream) {
  const int heads = (p.q == nullptr ? 0 : p.num_heads) + (p.k == nullptr ? 0 : p.num_kv_heads);
  return launch(
      kv_store_kernel<kDim>, dim3(static_cast<unsigned>(p.num_spans), static_cast<unsigned>(heads)),
      std::min(kMaxWarps, p.max_tokens) * 32,
      p.max_tokens == 1 ? 0 : static_cast<std::size_t>(kDim) * (kPageTokens + 2) * 2, stream, p);
}

}  // namespace

cudaError_t kv_store(const KvStoreParams& p, cudaStream_t stream) {
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
