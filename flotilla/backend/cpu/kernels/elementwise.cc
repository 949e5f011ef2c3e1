#include "flotilla/backend/cpu/kernels/elementwise.h"

#include "flotilla/backend/cpu/kernels/math_lanes.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {
namespace {

// f(i, n) for i = 0, 16, .. with n = 16, or fewer at the end.
template <class Fn>
FLOTILLA_INLINE inline void for_lanes(std::size_t count, Fn&& f) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, kLanes);
  if (i < count) f(i, static_cast<int>(count - i));
}

// (mean(x^2) + eps)^(-1/2). Lane l sums the elements i with i mod 16 = l, in increasing order.
FLOTILLA_INLINE inline float inverse_rms(const float* x, std::size_t dim, float eps) {
  F acc = zero();
  for_lanes(dim, [&](std::size_t i, int n) FLOTILLA_INLINE {
    const F v = load_partial(x + i, n);
    acc = fma(v, v, acc);
  });
  const float mean = reduce_add(acc) / static_cast<float>(dim);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

}  // namespace

void rms_norm_rows(const float* x, const float* weight, float eps, float* out, std::size_t rows,
                   std::size_t dim) {
  for (std::size_t r = 0; r < rows; ++r, x += dim, out += dim) {
    const F inverse = set1(inverse_rms(x, dim, eps));
    if (weight != nullptr) {
      for_lanes(dim, [&](std::size_t i, int n) FLOTILLA_INLINE {
        const F v = load_partial(x + i, n) * inverse;
        store_partial(out + i, v * load_partial(weight + i, n), n);
      });
    } else {
      for_lanes(dim, [&](std::size_t i, int n) FLOTILLA_INLINE {
        store_partial(out + i, load_partial(x + i, n) * inverse, n);
      });
    }
  }
}

void norm_add_rows(const float* x, const float* weight, float eps, float scale, float* residual,
                   std::size_t rows, std::size_t dim) {
  for (std::size_t r = 0; r < rows; ++r, x += dim, residual += dim) {
    const F inverse = set1(inverse_rms(x, dim, eps)), factor = set1(scale);
    for_lanes(dim, [&](std::size_t i, int n) FLOTILLA_INLINE {
      const F v = load_partial(x + i, n) * inverse * load_partial(weight + i, n);
      store_partial(residual + i, (load_partial(residual + i, n) + v) * factor, n);
    });
  }
}

// gelu_tanh(g) = g * (1 + tanh(u)) / 2 = g / (1 + exp(-2u)) with u = sqrt(2 / pi) * (g + 0.044715
// g^3); the second form has no cancellation.
void gelu_mul_array(const float* gate, const float* up, float* out, std::size_t count) {
  const F a = set1(-1.5957691216057308f), b = set1(-0.07135481627260025f), one = set1(1.0f);
  for_lanes(count, [&](std::size_t i, int n) FLOTILLA_INLINE {
    const F g = load_partial(gate + i, n);
    const F minus_2u = g * fma(g * g, b, a);
    const F gelu = g / (one + exp(minus_2u));
    store_partial(out + i, gelu * load_partial(up + i, n), n);
  });
}

void softcap_array(float* x, float cap, std::size_t count) {
  const F c = set1(cap);
  for_lanes(count, [&](std::size_t i, int n) FLOTILLA_INLINE {
    store_partial(x + i, tanh(load_partial(x + i, n) / c) * c, n);
  });
}

void rope_token(float* x, const float* cosines, const float* sines, int num_pairs, int num_heads,
                int head_dim) {
  for (int h = 0; h < num_heads; ++h) {
    float* first = x + static_cast<std::size_t>(h) * static_cast<std::size_t>(head_dim);
    float* second = first + head_dim / 2;
    for_lanes(static_cast<std::size_t>(num_pairs), [&](std::size_t i, int n) FLOTILLA_INLINE {
      const F a = load_partial(first + i, n), b = load_partial(second + i, n);
      const F c = load_partial(cosines + i, n), s = load_partial(sines + i, n);
      store_partial(first + i, fma(a, c, zero() - b * s), n);
      store_partial(second + i, fma(b, c, a * s), n);
    });
  }
}

void exp_array(const float* x, float* out, std::size_t count) {
  for_lanes(count, [&](std::size_t i, int n)
                       FLOTILLA_INLINE { store_partial(out + i, exp(load_partial(x + i, n)), n); });
}
void log_array(const float* x, float* out, std::size_t count) {
  for_lanes(count, [&](std::size_t i, int n)
                       FLOTILLA_INLINE { store_partial(out + i, log(load_partial(x + i, n)), n); });
}
void tanh_array(const float* x, float* out, std::size_t count) {
  for_lanes(count, [&](std::size_t i, int n) FLOTILLA_INLINE {
    store_partial(out + i, tanh(load_partial(x + i, n)), n);
  });
}

float sum_array(const float* x, std::size_t count) {
  F acc = zero();
  for_lanes(count,
            [&](std::size_t i, int n) FLOTILLA_INLINE { acc = acc + load_partial(x + i, n); });
  return reduce_add(acc);
}

float max_array(const float* x, std::size_t count) {
  F best = set1(-__builtin_inff());
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) best = max(load(x + i), best);
  float result = reduce_max(best);
  for (; i < count; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

std::uint32_t read_array(const std::byte* data, std::size_t bytes) {
  I acc[4] = {set1_int(0), set1_int(0), set1_int(0), set1_int(0)};
  for (std::size_t o = 0; o + 256 <= bytes; o += 256) {
    unroll<4>([&](auto j) FLOTILLA_INLINE { acc[j] = acc[j] ^ load_int(data + o + j * 64); });
    prefetch_near(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(data) + o + 4096));
  }
  alignas(64) float t[kLanes];
  store(t, as_float((acc[0] ^ acc[1]) ^ (acc[2] ^ acc[3])));
  std::uint32_t words[kLanes], result = 0;
  __builtin_memcpy(words, t, sizeof t);
  for (const std::uint32_t w : words) result ^= w;
  return result;
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
