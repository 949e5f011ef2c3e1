// The layout of key-value pages, shared by the state that owns them and the kernels that read them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flotilla::tensor {

// Keys are handled in blocks of 32 absolute positions; a page holds one block of one layer of one
// sequence.
inline constexpr int kKvBlock = 32;

struct KvGeometry {
  int num_kv_heads = 0;
  int head_dim = 0;
  int element_bytes = 4;  // float32, or bf16 on a device
  bool operator==(const KvGeometry&) const = default;
};

// One page in host memory: for each KV head K as [head_dim][32] (lane = key), then V as
// [32][head_dim] (lane = channel); float32. Devices have an order of their own.
inline std::size_t kv_page_floats(const KvGeometry& g) {
  return std::size_t{2} * static_cast<std::size_t>(g.num_kv_heads) *
         static_cast<std::size_t>(g.head_dim) * kKvBlock;
}
inline std::size_t kv_page_bytes(const KvGeometry& g) {
  return kv_page_floats(g) * static_cast<std::size_t>(g.element_bytes);
}
inline std::size_t kv_k_offset(const KvGeometry& g, int head) {
  return std::size_t{2} * static_cast<std::size_t>(head) * static_cast<std::size_t>(g.head_dim) *
         kKvBlock;
}
inline std::size_t kv_v_offset(const KvGeometry& g, int head) {
  return kv_k_offset(g, head) + static_cast<std::size_t>(g.head_dim) * kKvBlock;
}

// The pages of one sequence in one layer. pages[i] holds positions [32 * (first_block + i), 32 *
// (first_block + i + 1)). Window layers drop pages at the front, so first_block grows.
struct KvView {
  float* const* pages = nullptr;
  int first_block = 0;
  int num_blocks = 0;
};

}  // namespace flotilla::tensor
