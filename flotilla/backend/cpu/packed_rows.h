// Activations in the order in which the kernels of the linears read them.
#pragma once

#include <cstddef>
#include <memory>

namespace flotilla::backend {

class ThreadPool;

inline constexpr int kBlockK =
    256;  // k per cache block; a multiple of every group size; shows in no bits
inline constexpr int kPanelRows = 6;

// kByPlace: x[k] is multiplied by 16^(3 - k % 4), for kernels that leave 4-bit codes at their place
// in a word and so multiply them by 16^(k % 4 - 3). Both are powers of two: no product changes.
enum class RowScaling { kNone, kByPlace };
// Finite values from here on would overflow.
inline constexpr float kMaxPlaceable = 0x1p115f;

// For each block of kBlockK, panels of at most kPanelRows rows, each [k in block][rows]. Packing
// costs one pass over x and serves every weight that multiplies the same x (q, k and v; gate and
// up). K is padded with zeros to a multiple of the group.
class PackedRows {
 public:
  PackedRows() = default;
  PackedRows(const PackedRows&) = delete;
  PackedRows& operator=(const PackedRows&) = delete;

  // x is [m, k], m >= 1. Reuses its storage when that is large enough. Where values are too large
  // to be scaled, or not finite, scaling() is kNone whatever was asked for.
  void pack(const float* x, int m, int k, int group, RowScaling scaling, ThreadPool& pool);

  // Inlined by force: kernels of several instruction sets use them (see kernels/lanes.h).
  [[gnu::always_inline]] int m() const { return m_; }
  [[gnu::always_inline]] int k() const { return k_; }  // padded
  [[gnu::always_inline]] int group() const { return group_; }
  [[gnu::always_inline]] RowScaling scaling() const { return scaling_; }
  [[gnu::always_inline]] int num_panels() const { return num_panels_; }
  // Panels differ by at most one row, so that no panel is left with a row or two.
  [[gnu::always_inline]] int panel_begin(int p) const {
    return p * base_ + (p < extra_ ? p : extra_);
  }
  [[gnu::always_inline]] int panel_rows(int p) const { return base_ + (p < extra_ ? 1 : 0); }
  // Panel p of the block that begins at k0, a multiple of kBlockK.
  [[gnu::always_inline]] const float* block(int p, int k0) const {
    return data_.get() + static_cast<std::size_t>(k0) * static_cast<std::size_t>(m_) +
           static_cast<std::size_t>(panel_begin(p)) * static_cast<std::size_t>(block_len(k0));
  }
  // The sums of x, never scaled, over each group of that block: [group in block][rows].
  [[gnu::always_inline]] const float* block_sums(int p, int k0) const {
    return sums_ + static_cast<std::size_t>(k0 / group_) * static_cast<std::size_t>(m_) +
           static_cast<std::size_t>(panel_begin(p)) *
               static_cast<std::size_t>(block_len(k0) / group_);
  }
  // Frees storage above this size; called after a large step.
  void shrink(std::size_t max_bytes);

 private:
  struct Free {
    void operator()(float* p) const;
  };
  [[gnu::always_inline]] int block_len(int k0) const {
    return k_ - k0 < kBlockK ? k_ - k0 : kBlockK;
  }
  // False, with something left out, when scaling_ asks for more than can be done.
  bool pack_panels(const float* x, int k_given, ThreadPool& pool);
  void pack_panel(const float* x, int k_given, int p);
  void pack_padded(const float* in, int k_given, int rows, int begin, int end, float* out,
                   float* sums) const;
  void pack_single_row(const float* x, int k_given);

  std::unique_ptr<float, Free> data_;
  float* sums_ = nullptr;
  std::size_t capacity_ = 0;
  RowScaling scaling_ = RowScaling::kNone;
  int m_ = 0, k_ = 0, group_ = 64, num_panels_ = 0, base_ = 0, extra_ = 0;
};

}  // namespace flotilla::backend
