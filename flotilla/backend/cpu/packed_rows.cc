#include "flotilla/backend/cpu/packed_rows.h"

#include <algorithm>
#include <cmath>
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

// Not one value that is too large or not finite.
bool can_scale(const float* x, std::size_t count) {
  int bad = 0;  // without a branch, for the vectoriser
  for (std::size_t i = 0; i < count; ++i) bad |= std::fabs(x[i]) < kMaxPlaceable ? 0 : 1;
  return bad == 0;
}

constexpr float kScale[4] = {0x1p12f, 0x1p8f, 0x1p4f, 1.0f};

}  // namespace

void PackedRows::pack(const float* x, int m, int k, int group, RowScaling scaling,
                      ThreadPool& pool) {
  scaling_ = scaling;
  if (scaling == RowScaling::kByPlace &&
      !can_scale(x, static_cast<std::size_t>(m) * static_cast<std::size_t>(k))) {
    scaling_ = RowScaling::kNone;
  }
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
  if (m == 1) return pack_single_row(x, k);
  if (num_panels_ == 1) return pack_panel(x, k, 0);
  pool.run(num_panels_, [&](int p, int) { pack_panel(x, k, p); });
}

// The layout is that of x. Four groups at a time: a sum is a chain of dependent additions.
void PackedRows::pack_single_row(const float* x, int k_given) {
  float* data = data_.get();
  std::memcpy(data, x, static_cast<std::size_t>(k_given) * sizeof(float));
  std::fill(data + k_given, data + k_, 0.0f);
  const int groups = k_ / group_;
  int g = 0;
  for (; g + 4 <= groups; g += 4) {
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    const float* v = data + g * group_;
    for (const float* end = v + group_; v < end; ++v) {
      s0 += v[0];
      s1 += v[group_];
      s2 += v[2 * group_];
      s3 += v[3 * group_];
    }
    sums_[g] = s0;
    sums_[g + 1] = s1;
    sums_[g + 2] = s2;
    sums_[g + 3] = s3;
  }
  for (; g < groups; ++g) {
    float sum = 0;
    for (int i = 0; i < group_; ++i) sum += data[g * group_ + i];
    sums_[g] = sum;
  }
  if (scaling_ == RowScaling::kNone) return;
  for (int i = 0; i < k_; i += 4) {
    for (int j = 0; j < 4; ++j) data[i + j] *= kScale[j];
  }
}

void PackedRows::pack_panel(const float* x, int k_given, int p) {
  const int rows = panel_rows(p);
  const auto stride = static_cast<std::size_t>(k_given);
  const float* in = x + static_cast<std::size_t>(panel_begin(p)) * stride;
  static constexpr float kOnes[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  const float* scale = scaling_ == RowScaling::kNone ? kOnes : kScale;
  for (int k0 = 0; k0 < k_; k0 += kBlockK) {
    float* out = const_cast<float*>(block(p, k0));
    float* sums = const_cast<float*>(block_sums(p, k0));
    for (int g = k0; g < std::min(k_, k0 + kBlockK); g += group_) {
      float sum[kPanelRows] = {};
      for (int i = g; i < g + group_; ++i) {
        for (int r = 0; r < rows; ++r) {
          const float v =
              i < k_given ? in[static_cast<std::size_t>(r) * stride + static_cast<std::size_t>(i)]
                          : 0.0f;
          *out++ = v * scale[i % 4];
          sum[r] += v;
        }
      }
      for (int r = 0; r < rows; ++r) *sums++ = sum[r];
    }
  }
}

}  // namespace flotilla::backend
