// Functions of float32 with fixed bits: the same on every processor. For everything above the
// backend that must not call libm (sampling, for one). Any thread.
#pragma once

#include <cstddef>
#include <span>

namespace flotilla::backend {

// out[i] = f(x[i]); out may be x, and has its size. exp is within 1 ulp, log and tanh within 2.
void exp_array(std::span<const float> x, std::span<float> out);
void log_array(std::span<const float> x, std::span<float> out);
void tanh_array(std::span<const float> x, std::span<float> out);
float exp_f32(float x);
float log_f32(float x);
float tanh_f32(float x);

// Sixteen partial sums (i mod 16), each in increasing order, then a fixed tree.
float sum_array(std::span<const float> x);
// -infinity when empty. Numbers compared with a NaN may be lost, so look for NaN before.
float max_array(std::span<const float> x);

// Sine and cosine of a float32 angle in radians, |angle| up to 2^20, within 1 ulp or 1e-10
// absolute. The one routine behind all rotary tables.
struct SinCos {
  float sine;
  float cosine;
};
SinCos sin_cos(float angle);
// Of many angles.
void sin_cos_array(std::span<const float> angles, std::span<float> sines, std::span<float> cosines);

}  // namespace flotilla::backend
