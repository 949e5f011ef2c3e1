#include "flotilla/ops/ops.h"

namespace flotilla::ops {

Tensor embedding(Backend& backend, const Matrix& table, std::span<const TokenId> ids, float scale,
                 std::span<const std::int32_t> chosen) {
  for (const TokenId id : ids) {
    FLOTILLA_CHECK(id >= 0 && id < table.n(), "embedding: token id " + std::to_string(id) +
                                                  " outside of a table of " +
                                                  std::to_string(table.n()));
  }
  Tensor out =
      backend.allocate({static_cast<std::int64_t>(ids.size()), table.k()}, tensor::DType::kF32);
  backend.embedding({.table = &table, .ids = ids, .scale = scale, .out = out, .chosen = chosen});
  return out;
}

}  // namespace flotilla::ops
