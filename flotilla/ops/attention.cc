#include "flotilla/ops/check.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {

void kv_append(Backend& backend, const Tensor& k, const Tensor& v, const KvGeometry& geometry,
               std::span<const KvRow> rows) {
  check_values(backend, k, 3, "kv_append: keys");
  check_values(backend, v, 3, "kv_append: values");
  check_geometry(geometry, "kv_append");
  const backend::Shape expected{k.dim(0), geometry.num_kv_heads, geometry.head_dim};
  FLOTILLA_CHECK(k.shape() == expected && v.shape() == expected,
                 "kv_append: keys " + k.shape().to_string() + ", values " + v.shape().to_string() +
                     ", expected " + expected.to_string());
  check_kv_rows(rows, k.dim(0), 1, "kv_append");
  backend.kv_append({.k = k, .v = v, .geometry = geometry, .rows = rows});
}

void attention_inputs(Backend& backend, const backend::AttentionInputArgs& args) {
  const auto& g = args.geometry;
  check_values(backend, args.q, 3, "attention_inputs: queries");
  check_f32(args.q_norm, 1, "attention_inputs: norm of queries");
  check_geometry(g, "attention_inputs");
  const std::int64_t tokens = args.q.dim(0);
  FLOTILLA_CHECK(args.q.dim(2) == g.head_dim && args.q_norm.dim(0) == g.head_dim &&
                     static_cast<std::int64_t>(args.positions.size()) == tokens &&
                     static_cast<std::int64_t>(args.inverse_frequencies.size()) * 2 == g.head_dim,
                 "attention_inputs: queries " + args.q.shape().to_string() + " against heads of " +
                     std::to_string(g.head_dim));
  FLOTILLA_CHECK(args.k.empty() == args.v.empty(), "attention_inputs: keys without values");
  if (!args.k.empty()) {
    const backend::Shape expected{tokens, g.num_kv_heads, g.head_dim};
    check_f32(args.k_norm, 1, "attention_inputs: norm of keys");
    FLOTILLA_CHECK(args.k.shape() == expected && args.v.shape() == expected &&
                       args.k_norm.dim(0) == g.head_dim,
                   "attention_inputs: keys " + args.k.shape().to_string() + ", values " +
                       args.v.shape().to_string() + ", expected " + expected.to_string());
    check_kv_rows(args.rows, tokens, 1, "attention_inputs");
  }
  backend.attention_inputs(args);
}

Tensor attention(Backend& backend, const Tensor& q, const KvGeometry& geometry,
                 std::span<const KvRow> rows, int window, float scale) {
  check_values(backend, q, 3, "attention: queries");
  check_geometry(geometry, "attention");
  FLOTILLA_CHECK(
      q.dim(2) == geometry.head_dim && q.dim(1) % geometry.num_kv_heads == 0 && q.dim(1) > 0,
      "attention: queries " + q.shape().to_string() + " against " +
          std::to_string(geometry.num_kv_heads) + " KV heads of " +
          std::to_string(geometry.head_dim));
  FLOTILLA_CHECK(window >= 0, "attention: negative window");
  check_kv_rows(rows, q.dim(0), window, "attention");
  Tensor out = backend.allocate(q.shape(), backend.activation_dtype());
  backend.attention(
      {.q = q, .geometry = geometry, .rows = rows, .window = window, .scale = scale, .out = out});
  return out;
}

}  // namespace flotilla::ops
