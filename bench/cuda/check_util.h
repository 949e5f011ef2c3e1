// Small helpers of the checks.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "flotilla/backend/backend.h"

namespace flotilla::cuda_check {

using backend::Backend;
using backend::Shape;
using backend::Tensor;
using tensor::DType;

inline std::span<float> floats(const Tensor& t) {
  return {t.data<float>(), static_cast<std::size_t>(t.shape().num_elements())};
}
inline std::span<float> row(const Tensor& t, std::int64_t r) {
  const auto dim = static_cast<std::size_t>(t.shape().num_elements() / t.dim(0));
  return {t.data<float>() + static_cast<std::size_t>(r) * dim, dim};
}
inline Tensor host_tensor(const Shape& shape, DType type) {
  const auto bytes = static_cast<std::size_t>(shape.num_elements()) * tensor::dtype_bytes(type);
  return Tensor(tensor::make_host_buffer(bytes), 0, shape, type);
}
// Rounds a float32 tensor to bf16 in place, so that both sides see the same numbers.
inline void round_to_bf16(const Tensor& t) {
  for (float& v : floats(t)) v = tensor::bf16_to_f32(tensor::f32_to_bf16(v));
}
// The card's copy, as bf16 or float32.
inline Tensor on_card(Backend& backend, const Tensor& host, DType type = DType::kBF16) {
  if (type == DType::kF32) return backend.upload(host);
  const Tensor rounded = host_tensor(host.shape(), DType::kBF16);
  for (std::size_t i = 0; i < floats(host).size(); ++i)
    rounded.data<std::uint16_t>()[i] = tensor::f32_to_bf16(floats(host)[i]);
  return backend.upload(rounded);
}
// float32 in host memory, whatever the type on the card.
inline Tensor back(Backend& backend, const Tensor& card) {
  const Tensor host = backend.to_host(card);
  if (host.dtype() == DType::kF32) return host;
  const Tensor wide = host_tensor(host.shape(), DType::kF32);
  for (std::size_t i = 0; i < floats(wide).size(); ++i)
    floats(wide)[i] = tensor::bf16_to_f32(host.data<std::uint16_t>()[i]);
  return wide;
}
// ||got - want|| / ||want||; infinite when anything is not a number.
inline double relative_error(std::span<const float> got, std::span<const float> want) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - want[i];
    difference += d * d;
    norm += static_cast<double>(want[i]) * want[i];
  }
  const double error = std::sqrt(difference / std::max(norm, 1e-300));
  return std::isfinite(error) ? error : INFINITY;
}
inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.num_bytes() == b.num_bytes() && std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0;
}

class Report {
 public:
  void error(const std::string& what, double error, double limit) {
    const bool good = error <= limit;
    std::printf("  %-46s error %.2e (limit %.1e) %s\n", what.c_str(), error, limit,
                good ? "ok" : "FAILED");
    failures_ += good ? 0 : 1;
  }
  void expect(const std::string& what, bool good) {
    if (!good) std::printf("  %-46s FAILED\n", what.c_str());
    failures_ += good ? 0 : 1;
  }
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
};

}  // namespace flotilla::cuda_check
