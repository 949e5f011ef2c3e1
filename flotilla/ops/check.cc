#include "flotilla/ops/check.h"

#include <algorithm>
#include <string>

namespace flotilla::ops {
namespace {
constexpr int kMaxHeadDim = 512;
}  // namespace

void check_values(const backend::Backend& backend, const backend::Tensor& t, std::size_t rank,
                  std::string_view what) {
  if (!t.empty() && t.dtype() == backend.activation_dtype()) {
    FLOTILLA_CHECK(t.shape().rank() == rank, std::string(what) + " must be of rank " +
                                                 std::to_string(rank) + ", is " +
                                                 t.shape().to_string());
    return;
  }
  check_f32(t, rank, what);
}

void check_f32(const backend::Tensor& t, std::size_t rank, std::string_view what) {
  FLOTILLA_CHECK(!t.empty() && t.dtype() == tensor::DType::kF32 && t.shape().rank() == rank,
                 std::string(what) + " must be float32 of rank " + std::to_string(rank) + ", is " +
                     (t.empty() ? std::string("empty") : t.shape().to_string()));
}

void check_geometry(const backend::KvGeometry& g, std::string_view what) {
  FLOTILLA_CHECK(
      g.num_kv_heads >= 1 && g.head_dim >= 8 && g.head_dim <= kMaxHeadDim && g.head_dim % 8 == 0,
      std::string(what) + ": the head size must be a multiple of 8 up to 512, is " +
          std::to_string(g.head_dim));
}

void check_kv_rows(std::span<const backend::KvRow> rows, std::int64_t num_tokens, int window,
                   std::string_view what) {
  std::int64_t expected = 0;
  for (const backend::KvRow& row : rows) {
    FLOTILLA_CHECK(row.first_row == expected && row.num_tokens >= 1 && row.first_position >= 0,
                   std::string(what) + ": the rows of the step do not follow each other");
    expected += row.num_tokens;
    const int last = row.first_position + row.num_tokens - 1;
    const int first = window > 0 ? std::max(0, row.first_position - window + 1) : 0;
    FLOTILLA_CHECK(row.kv.pages != nullptr && first / tensor::kKvBlock >= row.kv.first_block &&
                       last / tensor::kKvBlock < row.kv.first_block + row.kv.num_blocks,
                   std::string(what) + ": pages " + std::to_string(row.kv.first_block) + " + " +
                       std::to_string(row.kv.num_blocks) + " do not hold positions " +
                       std::to_string(first) + " to " + std::to_string(last));
  }
  FLOTILLA_CHECK(expected == num_tokens, std::string(what) + ": the step has tokens without a row");
}

}  // namespace flotilla::ops
