// The definition of the bits. Plain loops, one element at a time, std::fma only, no vectors, no
// threads: slow, and what every kernel of the CPU backend equals by memcmp (finite inputs; which
// NaN comes out is not promised). Rounding is to nearest even everywhere, without flushing to zero.
// The functions of math.h are used where named.
//
// Linear. K is padded with zeros to a multiple of the group G (affine: 32, 64, 128; mxfp4, mxfp8:
// 32; nvfp4: 16; dense: 64, with scale 1):
//   total = +0
//   for each group of G consecutive k, increasing:
//     acc = +0, sum = +0
//     for k in the group, increasing:  acc = fma(code[n,k], x[k], acc),  sum = sum + x[k]
//     total = fma(scale, acc, affine ? fma(bias, sum, total) : total)
//   where an affine code of b bits is taken less its middle c = 2^(b-1), and bias stands for
//   fma(scale, c, bias): codes around zero leave less to cancel (docs/decisions/0004).
// Embedding. affine: fma(code, scale, bias) * s;  mx and nv: (code * scale) * s;  dense: code * s.
// Reductions over i: sixteen partial results (i mod 16), i increasing; then lane l takes lane l +
// 8, then + 4, + 2, + 1. RMS norm. r = 1 / sqrt(sum / dim + eps) with sum = fma(x, x, sum) as a
// reduction;  out = (x * r) * weight. Norm-add. residual = (residual + (x * r) * weight) * scale.
// GELU. g / (1 + exp(g * fma(g * g, b, a))), a = -2 sqrt(2 / pi), b = 0.044715 a;  then times `up`.
// Softcap. tanh(x / cap) * cap.
// RoPE. angle = float(position) * frequency;  (a, b) -> (fma(a, c, -(b * s)), fma(b, c, a * s)).
// Pairs from the last
//   non-zero frequency on are left alone.
// Attention, for one query and one head: blocks of 32 absolute positions, increasing, those without
// a visible key skipped:
//   score_j = dot_j * scale, dot = fma(q[d], k[d], dot) over increasing d from +0
//   m_b = max of the visible scores;  p_j = exp(score_j - m_b), 0 for hidden keys
//   s_b = reduction over the 32 keys;  v_b[d] = fma(p_j, v_j[d], v_b[d]) over the visible keys,
//   increasing, from +0 merged into the running (m, s, v), which begins as (-infinity, 0, 0), also
//   when there is a single block: m' = max(m, m_b);  a = exp(m - m'), b = exp(m_b - m');  s =
//   fma(s, a, s_b * b);  v[d] = fma(v[d], a, v_b[d] * b) out[d] = v[d] / s
#pragma once

#include <cstdint>
#include <span>

#include "flotilla/backend/backend.h"

namespace flotilla::backend {

// One element of a stored matrix: its code, and the scale and bias of its group (1 and 0 where
// there is none).
float stored_code(const StoredMatrix& m, std::int64_t n, std::int64_t k);
float stored_scale(const StoredMatrix& m, std::int64_t n, std::int64_t group);
float stored_bias(const StoredMatrix& m, std::int64_t n, std::int64_t group);
int stored_group(const StoredMatrix& m);
// What linear subtracts from affine codes; 0 for the others.
float stored_center(const StoredMatrix& m);

// out[n] for one row x[k].
void define_linear(const StoredMatrix& m, std::span<const float> x, std::span<float> out);
void define_embedding(const StoredMatrix& m, TokenId id, float factor, std::span<float> out);
float define_reduce_add(std::span<const float> partial);  // 16 of them
void define_rms_norm(std::span<const float> x, std::span<const float> weight, float eps,
                     std::span<float> out);
void define_norm_add(std::span<const float> x, std::span<const float> weight, float eps,
                     float factor, std::span<float> residual);
float define_gelu_mul(float gate, float up);
float define_softcap(float x, float cap);
// One head of one token.
void define_rope(std::span<float> x, std::int32_t position, std::span<const float> frequencies);
// One query row q[head_dim] of query head `head` at `position`.
void define_attention(std::span<const float> q, const KvGeometry& geometry, int kv_head,
                      const KvView& kv, int position, int window, float factor,
                      std::span<float> out);

}  // namespace flotilla::backend
