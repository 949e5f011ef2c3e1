// exp, tanh and log of sixteen lanes. Own polynomials, evaluated with FMA in one fixed order, so
// that every machine gives the same bits; libm is not called.
#pragma once

#include "flotilla/backend/cpu/kernels/lanes.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {

// Within 1 ulp. 0 below -104 and infinity above 88.73; NaN stays NaN.
FLOTILLA_INLINE inline F exp(F x) {
  const F c = min(set1(89.0f), max(set1(-104.0f), x));
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the mantissa.
  const F magic = set1(12582912.0f);
  const F t = fma(c, set1(1.44269504f), magic);
  const F n = t - magic;
  F r = fma(n, set1(-0.69140625f), c);
  r = fma(n, set1(-0.0017409306f), r);
  F p = set1(0.0001989098236663267f);
  p = fma(p, r, set1(0.0013933642767369747f));
  p = fma(p, r, set1(0.00833331048488617f));
  p = fma(p, r, set1(0.04166646674275398f));
  p = fma(p, r, set1(0.1666666716337204f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r * r, r) + set1(1.0f);
  // In two factors, because 2^n itself may be outside of the normal numbers.
  const I whole = as_int(t) - set1_int(0x4b400000u);
  const I half = halve(whole);
  const I bias = set1_int(127);
  const F first = as_float(shift_left<23>(half + bias));
  const F second = as_float(shift_left<23>(whole - half + bias));
  return p * first * second;
}

// Within 2 ulp.
FLOTILLA_INLINE inline F tanh(F x) {
  const I sign_bit = set1_int(0x80000000u);
  const I sign = as_int(x) & sign_bit;
  const F magnitude = as_float(as_int(x) ^ sign);
  const F z = x * x;
  F q = set1(0.002292744815349579f);
  q = fma(q, z, set1(-0.008343945257365704f));
  q = fma(q, z, set1(0.02176891826093197f));
  q = fma(q, z, set1(-0.053959257900714874f));
  q = fma(q, z, set1(0.13333304226398468f));
  q = fma(q, z, set1(-0.3333333432674408f));
  const F small = fma(q * z, x, x);
  const F e = exp(magnitude + magnitude);
  const F large = set1(1.0f) - set1(2.0f) / (e + set1(1.0f));
  const F signed_large = as_float(as_int(large) | sign);
  return select(less(magnitude, set1(0.625f)), small, signed_large);
}

// Within 2 ulp. -infinity at 0, NaN below; subnormal numbers are handled.
FLOTILLA_INLINE inline F log(F x) {
  const F smallest = set1(1.17549435e-38f);
  const Mask tiny = less(x, smallest);
  const F scaled = select(tiny, x * set1(16777216.0f), x);
  // Mantissa in [sqrt(1/2), sqrt(2)) and exponent: 0x3f3504f3 is sqrt(1/2).
  const I shifted = as_int(scaled) - set1_int(0x3f3504f3u);
  const F m = as_float((shifted & set1_int(0x007fffffu)) + set1_int(0x3f3504f3u));
  const F biased = to_float(shift_right<23>(shifted + set1_int(0x3f800000u)));
  const F e = biased - select(tiny, set1(151.0f), set1(127.0f));
  const F f = m - set1(1.0f);
  F p = set1(0.06971681863069534f);
  p = fma(p, f, set1(-0.11479836702346802f));
  p = fma(p, f, set1(0.11685442924499512f));
  p = fma(p, f, set1(-0.12425675988197327f));
  p = fma(p, f, set1(0.14249053597450256f));
  p = fma(p, f, set1(-0.1666780263185501f));
  p = fma(p, f, set1(0.20000715553760529f));
  p = fma(p, f, set1(-0.2499999701976776f));
  p = fma(p, f, set1(0.3333333134651184f));
  const F f2 = f * f;
  F y = f2 * f * p;
  y = fma(e, set1(0.0017409306f), y);
  y = fma(f2, set1(-0.5f), y);
  y = y + f;
  y = fma(e, set1(0.69140625f), y);
  const F infinity = as_float(set1_int(0x7f800000u));
  const F nan = as_float(set1_int(0x7fc00000u));
  y = select(less(x, infinity), y, x);  // +infinity and NaN
  y = select(less(zero(), x), y, nan);
  return select(equal(as_int(x) & set1_int(0x7fffffffu), set1_int(0)), zero() - infinity, y);
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
