// Element types and the conversions that the whole project agrees on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace flotilla::tensor {

enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kBool,
  kF8E4M3,
  kF8E8M0
};

std::size_t dtype_bytes(DType dtype);
// The names of safetensors: "F32", "BF16", "U32", ...
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

inline float bf16_to_f32(std::uint16_t v) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
}
// Round to nearest even; NaN stays NaN.
std::uint16_t f32_to_bf16(float v);
float f16_to_f32(std::uint16_t v);
std::uint16_t f32_to_f16(float v);  // round to nearest even

// E4M3 "fn": bias 7, largest 448, no infinity; 0x7f and 0xff are NaN.
float e4m3_to_f32(std::uint8_t v);
// Round to nearest even; values beyond 448 become 448. NaN stays NaN.
std::uint8_t f32_to_e4m3(float v);
// E8M0: 2^(v - 127); code 0 is 2^-127, code 255 is NaN.
float e8m0_to_f32(std::uint8_t v);
// E2M1 in the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
float e2m1_to_f32(std::uint8_t v);

}  // namespace flotilla::tensor
