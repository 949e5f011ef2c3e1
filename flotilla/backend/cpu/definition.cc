#include "flotilla/backend/cpu/definition.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "flotilla/backend/cpu/math.h"

namespace flotilla::backend {
namespace {

using tensor::DType;

std::uint32_t bits_at(const std::byte* row, std::int64_t bit, int count) {
  std::uint32_t v = 0;
  for (int i = 0; i < count; ++i) {
    const std::int64_t at = bit + i;
    v |= ((static_cast<std::uint32_t>(row[at / 8]) >> (at % 8)) & 1u) << i;
  }
  return v;
}

const std::byte* row_of(const Tensor& t, std::int64_t n) {
  return t.bytes() + static_cast<std::size_t>(n * t.dim(1)) * tensor::dtype_bytes(t.dtype());
}

float number(const Tensor& t, std::int64_t n, std::int64_t i) {
  const std::byte* row = row_of(t, n);
  switch (t.dtype()) {
    case DType::kF32:
      return std::bit_cast<float>(bits_at(row, i * 32, 32));
    case DType::kF16:
      return tensor::f16_to_f32(static_cast<std::uint16_t>(bits_at(row, i * 16, 16)));
    default:
      return tensor::bf16_to_f32(static_cast<std::uint16_t>(bits_at(row, i * 16, 16)));
  }
}

float inverse_rms(std::span<const float> x, float eps) {
  float partial[16] = {};
  for (std::size_t i = 0; i < x.size(); ++i)
    partial[i % 16] = std::fma(x[i], x[i], partial[i % 16]);
  return 1.0f / std::sqrt(define_reduce_add(partial) / static_cast<float>(x.size()) + eps);
}

}  // namespace

int stored_group(const StoredMatrix& m) {
  const bool dense = m.format == WeightFormat::kF32 || m.format == WeightFormat::kF16 ||
                     m.format == WeightFormat::kBF16;
  return dense ? 64 : m.group_size;
}

float stored_code(const StoredMatrix& m, std::int64_t n, std::int64_t k) {
  const std::byte* row = row_of(m.weight, n);
  switch (m.format) {
    case WeightFormat::kAffine:
      return static_cast<float>(bits_at(row, k * m.bits, m.bits));
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return tensor::e2m1_to_f32(static_cast<std::uint8_t>(bits_at(row, k * 4, 4)));
    case WeightFormat::kMxfp8:
      return tensor::e4m3_to_f32(static_cast<std::uint8_t>(bits_at(row, k * 8, 8)));
    default:
      return number(m.weight, n, k);
  }
}

float stored_scale(const StoredMatrix& m, std::int64_t n, std::int64_t group) {
  if (m.scales.empty()) return 1.0f;
  if (m.format == WeightFormat::kAffine) return number(m.scales, n, group);
  const auto v = static_cast<std::uint8_t>(row_of(m.scales, n)[group]);
  return m.format == WeightFormat::kNvfp4 ? tensor::e4m3_to_f32(v) : tensor::e8m0_to_f32(v);
}

float stored_bias(const StoredMatrix& m, std::int64_t n, std::int64_t group) {
  return m.format == WeightFormat::kAffine ? number(m.biases, n, group) : 0.0f;
}

float stored_center(const StoredMatrix& m) {
  return m.format == WeightFormat::kAffine ? static_cast<float>(1 << (m.bits - 1)) : 0.0f;
}

void define_linear(const StoredMatrix& m, std::span<const float> x, std::span<float> out) {
  const int group = stored_group(m);
  for (std::int64_t n = 0; n < m.n; ++n) {
    float total = 0.0f;
    for (std::int64_t g = 0; g * group < m.k; ++g) {
      const float center = stored_center(m);
      float acc = 0.0f, sum = 0.0f;
      for (std::int64_t k = g * group; k < (g + 1) * group; ++k) {
        const float xv = k < m.k ? x[static_cast<std::size_t>(k)] : 0.0f;
        acc = std::fma(k < m.k ? stored_code(m, n, k) - center : 0.0f, xv, acc);
        sum = sum + xv;
      }
      if (m.format == WeightFormat::kAffine) {
        const float bias = std::fma(stored_scale(m, n, g), center, stored_bias(m, n, g));
        total = std::fma(bias, sum, total);
      }
      total = std::fma(stored_scale(m, n, g), acc, total);
    }
    out[static_cast<std::size_t>(n)] = total;
  }
}

void define_embedding(const StoredMatrix& m, TokenId id, float factor, std::span<float> out) {
  const int group = stored_group(m);
  for (std::int64_t k = 0; k < m.k; ++k) {
    const float c = stored_code(m, id, k);
    float w = c;
    if (m.format == WeightFormat::kAffine) {
      w = std::fma(c, stored_scale(m, id, k / group), stored_bias(m, id, k / group));
    } else if (!m.scales.empty()) {
      w = c * stored_scale(m, id, k / group);
    }
    out[static_cast<std::size_t>(k)] = w * factor;
  }
}

float define_reduce_add(std::span<const float> partial) {
  float t[16];
  std::copy_n(partial.begin(), 16, t);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) t[i] = t[i] + t[i + half];
  }
  return t[0];
}

void define_rms_norm(std::span<const float> x, std::span<const float> weight, float eps,
                     std::span<float> out) {
  const float r = inverse_rms(x, eps);
  for (std::size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] * r;
    if (!weight.empty()) out[i] = out[i] * weight[i];
  }
}

void define_norm_add(std::span<const float> x, std::span<const float> weight, float eps,
                     float factor, std::span<float> residual) {
  const float r = inverse_rms(x, eps);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float v = x[i] * r * weight[i];
    residual[i] = (residual[i] + v) * factor;
  }
}

float define_gelu_mul(float gate, float up) {
  constexpr float kA = -1.5957691216057308f, kB = -0.07135481627260025f;
  const float e = exp_f32(gate * std::fma(gate * gate, kB, kA));
  return gate / (1.0f + e) * up;
}

float define_softcap(float x, float cap) { return tanh_f32(x / cap) * cap; }

void define_rope(std::span<float> x, std::int32_t position, std::span<const float> frequencies) {
  std::size_t pairs = frequencies.size();
  while (pairs > 0 && frequencies[pairs - 1] == 0.0f) --pairs;
  for (std::size_t i = 0; i < pairs; ++i) {
    const SinCos t = sin_cos(static_cast<float>(position) * frequencies[i]);
    const float a = x[i], b = x[i + frequencies.size()];
    x[i] = std::fma(a, t.cosine, -(b * t.sine));
    x[i + frequencies.size()] = std::fma(b, t.cosine, a * t.sine);
  }
}

void define_attention(std::span<const float> q, const KvGeometry& geometry, int kv_head,
                      const KvView& kv, int position, int window, float factor,
                      std::span<float> out) {
  constexpr int kBlock = tensor::kKvBlock;
  const std::size_t dim = q.size();
  const int lowest = window > 0 ? std::max(0, position - window + 1) : 0;
  float m = -std::numeric_limits<float>::infinity(), s = 0.0f;
  std::vector<float> v(dim, 0.0f), block_value(dim);
  for (int block = lowest / kBlock; block <= position / kBlock; ++block) {
    const float* keys = kv.pages[block - kv.first_block] + tensor::kv_k_offset(geometry, kv_head);
    const float* values = kv.pages[block - kv.first_block] + tensor::kv_v_offset(geometry, kv_head);
    const int begin = std::max(lowest - block * kBlock, 0);
    const int end = std::min(position + 1 - block * kBlock, kBlock);
    float score[kBlock], weight[kBlock] = {}, block_max = -std::numeric_limits<float>::infinity();
    for (int j = begin; j < end; ++j) {
      float dot = 0.0f;
      for (std::size_t d = 0; d < dim; ++d) {
        dot = std::fma(q[d], keys[d * kBlock + static_cast<std::size_t>(j)], dot);
      }
      score[j] = dot * factor;
      block_max = std::max(block_max, score[j]);
    }
    std::fill(block_value.begin(), block_value.end(), 0.0f);
    for (int j = begin; j < end; ++j) {
      weight[j] = exp_f32(score[j] - block_max);
      for (std::size_t d = 0; d < dim; ++d) {
        block_value[d] =
            std::fma(weight[j], values[static_cast<std::size_t>(j) * dim + d], block_value[d]);
      }
    }
    float partial[16];
    for (int i = 0; i < 16; ++i) partial[i] = weight[i] + weight[i + 16];
    const float block_sum = define_reduce_add(partial);
    const float new_max = std::max(m, block_max);
    const float a = exp_f32(m - new_max), b = exp_f32(block_max - new_max);
    s = std::fma(s, a, block_sum * b);
    for (std::size_t d = 0; d < dim; ++d) v[d] = std::fma(v[d], a, block_value[d] * b);
    m = new_max;
  }
  for (std::size_t d = 0; d < dim; ++d) out[d] = v[d] / s;
}

}  // namespace flotilla::backend
