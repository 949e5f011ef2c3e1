#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {

void kv_append(Backend& backend, const Tensor& k, const Tensor& v, const KvGeometry& geometry,
               std::span<const KvRow> rows) {
  check_f32(k, 3, "kv_append: keys");
  check_f32(v, 3, "kv_append: values");
  check_geometry(geometry, "kv_append");
  const backend::Shape expected{k.dim(0), geometry.num_kv_heads, geometry.head_dim};
  FLOTILLA_CHECK(k.shape() == expected && v.shape() == expected,
                 "kv_append: keys " + k.shape().to_string() + ", values " + v.shape().to_string() +
                     ", expected " + expected.to_string());
  check_kv_rows(rows, k.dim(0), 1, "kv_append");
  backend.kv_append({.k = k, .v = v, .geometry = geometry, .rows = rows});
}

Tensor attention(Backend& backend, const Tensor& q, const KvGeometry& geometry,
                 std::span<const KvRow> rows, int window, float scale) {
  check_f32(q, 3, "attention: queries");
  check_geometry(geometry, "attention");
  FLOTILLA_CHECK(
      q.dim(2) == geometry.head_dim && q.dim(1) % geometry.num_kv_heads == 0 && q.dim(1) > 0,
      "attention: queries " + q.shape().to_string() + " against " +
          std::to_string(geometry.num_kv_heads) + " KV heads of " +
          std::to_string(geometry.head_dim));
  FLOTILLA_CHECK(window >= 0, "attention: negative window");
  check_kv_rows(rows, q.dim(0), window, "attention");
  Tensor out = backend.allocate(q.shape(), tensor::DType::kF32);
  backend.attention(
      {.q = q, .geometry = geometry, .rows = rows, .window = window, .scale = scale, .out = out});
  return out;
}

}  // namespace flotilla::ops
