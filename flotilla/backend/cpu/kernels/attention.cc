// Softmax attention of a few query rows over the pages of one KV head. Scores: a lane is a key.
// Values: a lane is a channel. The rows of an item share every page that they read.
#include "flotilla/backend/cpu/kernels/elementwise.h"
#include "flotilla/backend/cpu/kernels/math_lanes.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {
namespace {

using tensor::kKvBlock;

struct AttentionScratch {
  alignas(64) float out[kAttentionRows][kMaxHeadDim];   // running value
  alignas(64) float weights[kAttentionRows][kKvBlock];  // scores, then exp(score - block maximum)
  alignas(64) float max[kAttentionRows], sum[kAttentionRows];  // running
  alignas(64) float block_max[kAttentionRows], block_sum[kAttentionRows];
  alignas(64) float keep[kAttentionRows], add[kAttentionRows];  // factors of the merge
  const float* q[kAttentionRows];
  int begin[kAttentionRows], end[kAttentionRows];  // visible keys of the current block
};
static_assert(sizeof(AttentionScratch) <= kScratchBytes);
static_assert(kAttentionRows == kLanes && kKvBlock == 2 * kLanes);

alignas(64) constexpr float kIndex[kKvBlock] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                                11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// What is needed next comes from memory while this computes: the values of a page while its keys
// are read, and the next page's keys meanwhile. `ahead` is where that lies, null for no such place.
FLOTILLA_INLINE inline void fetch_lines(const float* ahead, int first, int count) {
  if (ahead == nullptr) return;
  for (int i = first; i < first + count; ++i) prefetch_far(ahead + i * kLanes);
}

// Scores of R rows with 16 * H keys of the page, d increasing.
template <int R, int H>
FLOTILLA_INLINE inline void score_keys(const float* page, const float* const* q, int head_dim,
                                       F scale, float (*weights)[kKvBlock], const float* ahead) {
  F acc[R][H];
  unroll<R * H>([&](auto i) FLOTILLA_INLINE { acc[i / H][i % H] = zero(); });
  for (int d = 0; d < head_dim; ++d) {
    F k[H];
    fetch_lines(ahead, 2 * d, 2);
    unroll<H>([&](auto h) FLOTILLA_INLINE { k[h] = load(page + d * kKvBlock + h * kLanes); });
    unroll<R>([&](auto r) FLOTILLA_INLINE {
      const F qv = broadcast(q[r] + d);
      unroll<H>([&](auto h) FLOTILLA_INLINE { acc[r][h] = fma(qv, k[h], acc[r][h]); });
    });
  }
  unroll<R * H>([&](auto i) FLOTILLA_INLINE {
    store(weights[i / H] + (i % H) * kLanes, acc[i / H][i % H] * scale);
  });
}

template <int R>
FLOTILLA_INLINE inline void score_rows(const float* page, const float* const* q, int head_dim,
                                       F scale, float (*weights)[kKvBlock], const float* ahead) {
  if constexpr (R <= 2) return score_keys<R, 2>(page, q, head_dim, scale, weights, ahead);
  score_keys<R, 1>(page, q, head_dim, scale, weights, ahead);
  // The other half of the keys, which lies beside.
  F acc[R];
  unroll<R>([&](auto r) FLOTILLA_INLINE { acc[r] = zero(); });
  for (int d = 0; d < head_dim; ++d) {
    const F k = load(page + d * kKvBlock + kLanes);
    unroll<R>([&](auto r) FLOTILLA_INLINE { acc[r] = fma(broadcast(q[r] + d), k, acc[r]); });
  }
  unroll<R>([&](auto r) FLOTILLA_INLINE { store(weights[r] + kLanes, acc[r] * scale); });
}

// Maximum, weights and their sum over the visible keys of one block.
FLOTILLA_INLINE inline void softmax_block(float* weights, int begin, int end, float& max_out,
                                          float& sum_out) {
  F s[2] = {load(weights), load(weights + kLanes)};
  if (begin > 0 || end < kKvBlock) {
    const F first = set1(static_cast<float>(begin)), last = set1(static_cast<float>(end));
    const F hidden = set1(-__builtin_inff());
    unroll<2>([&](auto h) FLOTILLA_INLINE {
      const F index = load(kIndex + h * kLanes);
      s[h] = select(less(index, first), hidden, select(less(index, last), s[h], hidden));
    });
  }
  const float block_max = reduce_max(max(s[0], s[1]));
  const F m = set1(block_max);
  const F p0 = exp(s[0] - m), p1 = exp(s[1] - m);
  store(weights, p0);
  store(weights + kLanes, p1);
  max_out = block_max;
  sum_out = reduce_add(p0 + p1);
}

// Channels [d, d + 16 * S) of R rows: the block's value, keys increasing, merged into the running
// one.
template <int R, int S>
FLOTILLA_INLINE inline void value_strips(const float* page, int d, int width, int head_dim,
                                         int first_row, int begin, int end, AttentionScratch& s,
                                         const float* ahead) {
  F acc[R][S];
  unroll<R * S>([&](auto i) FLOTILLA_INLINE { acc[i / S][i % S] = zero(); });
  const float* v = page + begin * head_dim + d;
  for (int key = begin; key < end; ++key, v += head_dim) {
    fetch_lines(ahead, d / kLanes * kKvBlock + key * S, S);
    F value[S];
    unroll<S>([&](auto i) FLOTILLA_INLINE {
      value[i] = S > 1 ? load(v + i * kLanes) : load_partial(v, width);
    });
    unroll<R>([&](auto r) FLOTILLA_INLINE {
      const F p = broadcast(s.weights[first_row + r] + key);
      unroll<S>([&](auto i) FLOTILLA_INLINE { acc[r][i] = fma(p, value[i], acc[r][i]); });
    });
  }
  unroll<R>([&](auto r) FLOTILLA_INLINE {
    const F keep = broadcast(s.keep + first_row + r), add = broadcast(s.add + first_row + r);
    unroll<S>([&](auto i) FLOTILLA_INLINE {
      float* out = s.out[first_row + r] + d + i * kLanes;
      store(out, fma(load(out), keep, acc[r][i] * add));
    });
  });
}

template <int R>
void value_rows(const float* page, int head_dim, int first_row, AttentionScratch& s,
                const float* ahead) {
  constexpr int S = R == 1 ? 4 : R == 2 ? 2 : 1;
  const int begin = s.begin[first_row], end = s.end[first_row];
  int d = 0;
  if constexpr (S > 1) {
    for (; d + S * kLanes <= head_dim; d += S * kLanes) {
      value_strips<R, S>(page, d, kLanes, head_dim, first_row, begin, end, s, ahead);
    }
  }
  for (; d + kLanes <= head_dim; d += kLanes) {
    value_strips<R, 1>(page, d, kLanes, head_dim, first_row, begin, end, s, ahead);
  }
  // The scratch row has room for the lanes beyond the head.
  if (d < head_dim) {
    value_strips<R, 1>(page, d, head_dim - d, head_dim, first_row, begin, end, s, nullptr);
  }
}

void score_row_range(const float* page, int head_dim, F scale, int begin, int end,
                     AttentionScratch& s, const float* ahead) {
  int r = begin;
  for (; r + 4 <= end; r += 4) {
    score_rows<4>(page, s.q + r, head_dim, scale, s.weights + r, ahead);
    ahead = nullptr;
  }
  switch (end - r) {
    case 3:
      return score_rows<3>(page, s.q + r, head_dim, scale, s.weights + r, ahead);
    case 2:
      return score_rows<2>(page, s.q + r, head_dim, scale, s.weights + r, ahead);
    case 1:
      return score_rows<1>(page, s.q + r, head_dim, scale, s.weights + r, ahead);
    default:
      return;
  }
}

// Rows with the same visible keys go together.
void value_row_range(const float* page, int head_dim, int begin, int end, AttentionScratch& s,
                     const float* ahead) {
  for (int r = begin; r < end;) {
    int count = 1;
    while (count < 4 && r + count < end && s.begin[r + count] == s.begin[r] &&
           s.end[r + count] == s.end[r]) {
      ++count;
    }
    switch (count) {
      case 4:
        value_rows<4>(page, head_dim, r, s, ahead);
        break;
      case 3:
        value_rows<3>(page, head_dim, r, s, ahead);
        break;
      case 2:
        value_rows<2>(page, head_dim, r, s, ahead);
        break;
      default:
        value_rows<1>(page, head_dim, r, s, ahead);
        break;
    }
    r += count;
    ahead = nullptr;
  }
}

// New maximum and sum of the rows [begin, end), and the factors that the values take.
FLOTILLA_INLINE inline void merge_rows(int begin, int end, AttentionScratch& s) {
  const F old_max = load(s.max), block_max = load(s.block_max);
  const F new_max = max(old_max, block_max);
  const F keep = exp(old_max - new_max), add = exp(block_max - new_max);
  const F new_sum = fma(load(s.sum), keep, load(s.block_sum) * add);
  store(s.keep, keep);
  store(s.add, add);
  alignas(64) float maxima[kLanes], sums[kLanes];
  store(maxima, new_max);
  store(sums, new_sum);
  for (int r = begin; r < end; ++r) {
    s.max[r] = maxima[r];
    s.sum[r] = sums[r];
  }
}

}  // namespace

void attention_item(const AttentionItem& item, std::byte* scratch) {
  auto& s = *reinterpret_cast<AttentionScratch*>(scratch);
  const int rows = item.num_heads * item.num_tokens, head_dim = item.head_dim;
  const auto head_floats = static_cast<std::size_t>(head_dim);
  const F scale = set1(item.scale);
  for (int r = 0; r < rows; ++r) {
    s.q[r] = item.q + static_cast<std::size_t>(r / item.num_heads) * item.token_stride +
             static_cast<std::size_t>(item.first_head + r % item.num_heads) * head_floats;
    __builtin_memset(s.out[r], 0,
                     static_cast<std::size_t>((head_dim + 15) / 16 * 16) * sizeof(float));
  }
  for (int r = 0; r < kAttentionRows; ++r) {
    s.max[r] = -__builtin_inff();
    s.sum[r] = s.block_max[r] = s.block_sum[r] = 0.0f;
  }
  const int last = item.first_position + item.num_tokens - 1;
  const int first_key = item.window > 0 ? max_int(0, item.first_position - item.window + 1) : 0;
  for (int block = first_key / kKvBlock; block <= last / kKvBlock; ++block) {
    const int base = block * kKvBlock;
    int begin = rows, end = 0;  // rows that see any key of the block: they are consecutive
    for (int r = 0; r < rows; ++r) {
      const int position = item.first_position + r / item.num_heads;
      const int lowest = item.window > 0 ? max_int(0, position - item.window + 1) : 0;
      s.begin[r] = max_int(lowest - base, 0);
      s.end[r] = min_int(position + 1 - base, kKvBlock);
      if (s.begin[r] >= s.end[r]) continue;
      begin = min_int(begin, r);
      end = r + 1;
    }
    if (begin >= end) continue;
    const float* page = item.kv.pages[block - item.kv.first_block];
    const float* next = block < last / kKvBlock
                            ? item.kv.pages[block + 1 - item.kv.first_block] + item.k_offset
                            : nullptr;
    score_row_range(page + item.k_offset, head_dim, scale, begin, end, s, page + item.v_offset);
    for (int r = begin; r < end; ++r) {
      softmax_block(s.weights[r], s.begin[r], s.end[r], s.block_max[r], s.block_sum[r]);
    }
    merge_rows(begin, end, s);
    value_row_range(page + item.v_offset, head_dim, begin, end, s, next);
  }
  for (int r = 0; r < rows; ++r) {
    float* out = item.out + static_cast<std::size_t>(r / item.num_heads) * item.token_stride +
                 static_cast<std::size_t>(item.first_head + r % item.num_heads) * head_floats;
    const F sum = broadcast(s.sum + r);
    for (int d = 0; d < head_dim; d += kLanes) {
      store_partial(out + d, load(s.out[r] + d) / sum, head_dim - d);
    }
  }
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
