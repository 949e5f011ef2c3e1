// Checks that the operations share. Inside ops only.
#pragma once

#include <string_view>

#include "flotilla/backend/backend.h"

namespace flotilla::ops {

// Activations of this backend, or float32; not empty, of this rank.
void check_values(const backend::Backend& backend, const backend::Tensor& t, std::size_t rank,
                  std::string_view what);
// float32, not empty, of this rank.
void check_f32(const backend::Tensor& t, std::size_t rank, std::string_view what);
// The rows lie one after another in [0, num_tokens), and the pages cover what the step reads and
// writes.
void check_kv_rows(std::span<const backend::KvRow> rows, std::int64_t num_tokens, int window,
                   std::string_view what);
void check_geometry(const backend::KvGeometry& geometry, std::string_view what);

}  // namespace flotilla::ops
