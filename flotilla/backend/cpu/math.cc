#include "flotilla/backend/cpu/math.h"

#include <cstdint>

#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/base/check.h"

namespace flotilla::backend {
namespace {

const CpuKernels& kernels() {
  static const CpuKernels& best = *find_cpu_kernels(CpuTarget::kBest);
  return best;
}

// In double, with plain products and sums (exact IEEE operations, not fused by any compiler here):
// bits do not depend on the processor, and the vectoriser is free to work.
inline void sin_cos_one(float angle, float& sine, float& cosine) {
  const double a = static_cast<double>(angle);
  // Adding 1.5 * 2^52 rounds to the nearest integer. pi / 2 in three pieces: n * the first is
  // exact.
  constexpr double kMagic = 6755399441055744.0;
  const double n = (a * 0x1.45f306dc9c883p-1 + kMagic) - kMagic;
  const double r = ((a - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
  const double z = r * r;
  // Taylor series; |r| <= pi / 4, so that what is left out is below 1e-13.
  double s = -1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = s * z * r + r;
  double c = -1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  c = c * z + 1.0;
  const auto quadrant = static_cast<std::int64_t>(n) & 3;
  const double sine_part = (quadrant & 1) != 0 ? c : s;
  const double cosine_part = (quadrant & 1) != 0 ? s : c;
  sine = static_cast<float>((quadrant & 2) != 0 ? -sine_part : sine_part);
  cosine = static_cast<float>(quadrant == 1 || quadrant == 2 ? -cosine_part : cosine_part);
}

}  // namespace

void exp_array(std::span<const float> x, std::span<float> out) {
  FLOTILLA_CHECK(x.size() == out.size(), "exp_array: sizes differ");
  kernels().exp(x.data(), out.data(), x.size());
}
void log_array(std::span<const float> x, std::span<float> out) {
  FLOTILLA_CHECK(x.size() == out.size(), "log_array: sizes differ");
  kernels().log(x.data(), out.data(), x.size());
}
void tanh_array(std::span<const float> x, std::span<float> out) {
  FLOTILLA_CHECK(x.size() == out.size(), "tanh_array: sizes differ");
  kernels().tanh(x.data(), out.data(), x.size());
}
float exp_f32(float x) {
  kernels().exp(&x, &x, 1);
  return x;
}
float log_f32(float x) {
  kernels().log(&x, &x, 1);
  return x;
}
float tanh_f32(float x) {
  kernels().tanh(&x, &x, 1);
  return x;
}
float sum_array(std::span<const float> x) { return kernels().sum(x.data(), x.size()); }
float max_array(std::span<const float> x) { return kernels().max(x.data(), x.size()); }

SinCos sin_cos(float angle) {
  SinCos out{};
  sin_cos_one(angle, out.sine, out.cosine);
  return out;
}

void sin_cos_array(std::span<const float> angles, std::span<float> sines,
                   std::span<float> cosines) {
  FLOTILLA_CHECK(angles.size() == sines.size() && angles.size() == cosines.size(),
                 "sin_cos_array: sizes differ");
  for (std::size_t i = 0; i < angles.size(); ++i) sin_cos_one(angles[i], sines[i], cosines[i]);
}

}  // namespace flotilla::backend
