#include "flotilla/backend/cpu/packed_rows.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "flotilla/backend/cpu/thread_pool.h"

namespace flotilla::backend {

void PackedRows::Free::operator()(float* p) const { std::free(p); }

void PackedRows::shrink(std::size_t max_bytes) {
  if (capacity_ * sizeof(float) <= max_bytes) return;
  data_.reset();
  capacity_ = 0;
}

namespace {

constexpr float kScale[4] = {0x1p12f, 0x1p8f, 0x1p4f, 1.0f};

typedef float Lanes __attribute__((vector_size(16)));
Lanes load(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
// Not one value that is too large or not finite. Without a branch, for the vectoriser: as integers,
// absolute values compare as they do as floats, and NaN is the largest.
bool can_scale(const float* x, std::size_t count) {
  std::int32_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff;
    bad |= std::bit_cast<std::int32_t>(kMaxPlaceable) - 1 - magnitude;  // the sign
  }
  return bad >= 0;
}
// The first N lanes.
template <int N>
void store(float* p, Lanes v) {
  if constexpr (N >= 4) {
    std::memcpy(p, &v, sizeof v);
  } else if constexpr (N == 3) {  // a copy of twelve bytes would go through memory
    std::memcpy(p, &v, 2 * sizeof(float));
    p[2] = v[2];
  } else {
    std::memcpy(p, &v, N * sizeof(float));
  }
}
void transpose(Lanes (&v)[4]) {
  const Lanes a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
  const Lanes b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  const Lanes c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const Lanes d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

struct BlockArgs {
  const float* x;
  std::size_t stride;  // between rows of x
  int groups, group;
  float* out;   // [k][rows]
  float* sums;  // [groups][rows]
};

// One block of a panel of R rows, four k and N groups at a time; a lane is a row.
template <int R, int N>
int pack_groups(const BlockArgs& a, int g, RowScaling scaling) {
  for (; g + N <= a.groups; g += N) {
    Lanes low[N] = {}, high[N] = {};  // sums of rows 0 .. 3 and of the others
    for (int i = 0; i < a.group; i += 4) {
      for (int n = 0; n < N; ++n) {
        const int k = (g + n) * a.group + i;
        const float* x = a.x + k;
        float* out = a.out + k * R;
        Lanes first[4] = {}, second[4] = {};
        for (int r = 0; r < std::min(R, 4); ++r) {
          first[r] = load(x + static_cast<std::size_t>(r) * a.stride);
        }
        transpose(first);
        if constexpr (R > 4) {
          for (int r = 4; r < R; ++r) {
            second[r - 4] = load(x + static_cast<std::size_t>(r) * a.stride);
          }
          transpose(second);
        }
        for (int j = 0; j < 4; ++j) {
          low[n] += first[j];
          if constexpr (R > 4) high[n] += second[j];
          const float scale = scaling == RowScaling::kNone ? 1.0f : kScale[j];
          store<R>(out + j * R, first[j] * scale);
          if constexpr (R > 4) store<R - 4>(out + j * R + 4, second[j] * scale);
        }
      }
    }
    for (int n = 0; n < N; ++n) {
      float* sums = a.sums + (g + n) * R;
      store<R>(sums, low[n]);
      if constexpr (R > 4) store<R - 4>(sums + 4, high[n]);
    }
  }
  return g;
}
template <int R>
void pack_block(const BlockArgs& args, RowScaling scaling) {
  pack_groups<R, 1>(args, pack_groups < R, R <= 4 ? 4 : 2 > (args, 0, scaling), scaling);
}

}  // namespace

void PackedRows::pack(const float* x, int m, int k, int group, RowScaling scaling,
                      ThreadPool& pool) {
  scaling_ = scaling;
  m_ = m;
  group_ = group;
  k_ = (k + group - 1) / group * group;
  num_panels_ = (m + kPanelRows - 1) / kPanelRows;
  base_ = m / num_panels_;
  extra_ = m % num_panels_;
  const auto rows = static_cast<std::size_t>(m);
  const auto depth = static_cast<std::size_t>(k_);
  const std::size_t need = rows * depth + rows * (depth / static_cast<std::size_t>(group));
  if (need > capacity_) {
    data_.reset();
    const std::size_t bytes = (need * sizeof(float) + 4095) / 4096 * 4096;
    data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (data_ == nullptr) throw std::bad_alloc();
    capacity_ = bytes / sizeof(float);
  }
  sums_ = data_.get() + rows * depth;
  // Whether all rows can be scaled is seen on the way; that one cannot is rare enough to begin
  // anew.
  if (pack_panels(x, k, pool)) return;
  scaling_ = RowScaling::kNone;
  (void)pack_panels(x, k, pool);
}

bool PackedRows::pack_panels(const float* x, int k_given, ThreadPool& pool) {
  std::atomic<bool> done{true};
  const auto pack_one = [&](int p) {
    const auto row = static_cast<std::size_t>(k_given);
    if (scaling_ == RowScaling::kByPlace &&
        !can_scale(x + static_cast<std::size_t>(panel_begin(p)) * row,
                   static_cast<std::size_t>(panel_rows(p)) * row)) {
      done.store(false, std::memory_order_relaxed);
    } else if (m_ == 1) {
      pack_single_row(x, k_given);
    } else {
      pack_panel(x, k_given, p);
    }
  };
  if (num_panels_ == 1) {
    pack_one(0);
  } else {
    pool.run(num_panels_, [&](int p, int) { pack_one(p); });
  }
  return done.load(std::memory_order_relaxed);
}

// The layout is that of x. A sum is a chain of dependent additions, so eight groups go side by
// side.
void PackedRows::pack_single_row(const float* x, int k_given) {
  float* data = data_.get();
  std::memcpy(data, x, static_cast<std::size_t>(k_given) * sizeof(float));
  std::fill(data + k_given, data + k_, 0.0f);
  const int groups = k_ / group_;
  int g = 0;
  for (; g + 8 <= groups; g += 8) {
    Lanes low = {}, high = {};  // of groups g .. g + 3 and g + 4 .. g + 7
    for (int i = 0; i < group_; i += 4) {
      Lanes a[4], b[4];
      for (int j = 0; j < 4; ++j) {
        a[j] = load(data + (g + j) * group_ + i);
        b[j] = load(data + (g + 4 + j) * group_ + i);
      }
      transpose(a);
      transpose(b);
      for (int j = 0; j < 4; ++j) {
        low += a[j];
        high += b[j];
      }
    }
    store<4>(sums_ + g, low);
    store<4>(sums_ + g + 4, high);
  }
  for (; g < groups; ++g) {
    float sum = 0;
    for (int i = 0; i < group_; ++i) sum += data[g * group_ + i];
    sums_[g] = sum;
  }
  if (scaling_ == RowScaling::kNone) return;
  const Lanes scale = load(kScale);
  for (int i = 0; i < k_; i += 4) {
    store<4>(data + i, load(data + i) * scale);
  }
}

void PackedRows::pack_panel(const float* x, int k_given, int p) {
  const int rows = panel_rows(p);
  const auto stride = static_cast<std::size_t>(k_given);
  const float* in = x + static_cast<std::size_t>(panel_begin(p)) * stride;
  for (int k0 = 0; k0 < k_; k0 += kBlockK) {
    float* out = const_cast<float*>(block(p, k0));
    float* sums = const_cast<float*>(block_sums(p, k0));
    const int end = std::min(k_, k0 + kBlockK);
    if (end > k_given) {
      pack_padded(in, k_given, rows, k0, end, out, sums);
      continue;
    }
    const BlockArgs args{in + k0, stride, (end - k0) / group_, group_, out, sums};
    switch (rows) {
      case 1:
        pack_block<1>(args, scaling_);
        break;
      case 2:
        pack_block<2>(args, scaling_);
        break;
      case 3:
        pack_block<3>(args, scaling_);
        break;
      case 4:
        pack_block<4>(args, scaling_);
        break;
      case 5:
        pack_block<5>(args, scaling_);
        break;
      default:
        pack_block<6>(args, scaling_);
        break;
    }
  }
}

// A block that reaches beyond the end of x.
void PackedRows::pack_padded(const float* in, int k_given, int rows, int begin, int end, float* out,
                             float* sums) const {
  const auto stride = static_cast<std::size_t>(k_given);
  for (int g = begin; g < end; g += group_) {
    float sum[kPanelRows] = {};
    for (int i = g; i < g + group_; ++i) {
      for (int r = 0; r < rows; ++r) {
        const float v = i < k_given
                            ? in[static_cast<std::size_t>(r) * stride + static_cast<std::size_t>(i)]
                            : 0.0f;
        *out++ = scaling_ == RowScaling::kNone ? v : v * kScale[i % 4];
        sum[r] += v;
      }
    }
    for (int r = 0; r < rows; ++r) *sums++ = sum[r];
  }
}

}  // namespace flotilla::backend
