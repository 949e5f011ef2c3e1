#include "flotilla/tensor/dtype.h"

#include <array>
#include <cmath>
#include <limits>

#include "flotilla/base/check.h"

namespace flotilla::tensor {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array kEntries = {
    Entry{DType::kF32, "F32", 4},        Entry{DType::kF16, "F16", 2},
    Entry{DType::kBF16, "BF16", 2},      Entry{DType::kF64, "F64", 8},
    Entry{DType::kU8, "U8", 1},          Entry{DType::kI8, "I8", 1},
    Entry{DType::kU16, "U16", 2},        Entry{DType::kI16, "I16", 2},
    Entry{DType::kU32, "U32", 4},        Entry{DType::kI32, "I32", 4},
    Entry{DType::kU64, "U64", 8},        Entry{DType::kI64, "I64", 8},
    Entry{DType::kBool, "BOOL", 1},      Entry{DType::kF8E4M3, "F8_E4M3", 1},
    Entry{DType::kF8E8M0, "F8_E8M0", 1},
};

const Entry& entry(DType dtype) {
  const auto i = static_cast<std::size_t>(dtype);
  FLOTILLA_CHECK(i < kEntries.size() && kEntries[i].dtype == dtype, "unknown dtype");
  return kEntries[i];
}

}  // namespace

std::size_t dtype_bytes(DType dtype) { return entry(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return entry(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Entry& e : kEntries) {
    if (e.name == name) return e.dtype;
  }
  return std::nullopt;
}

std::uint16_t f32_to_bf16(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  // Rounding could carry a NaN into infinity, so a NaN is cut and made quiet instead.
  if (std::isnan(v)) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float f16_to_f32(std::uint16_t v) {
  const std::uint32_t sign = (v & 0x8000u) << 16;
  const std::uint32_t magnitude = v & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
  // The float with the same exponent field is 2^-112 of the value; exact for subnormals too.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

std::uint16_t f32_to_f16(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // >= 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: the unit of the last place is 2^-24
    // Adding 1/2 leaves the mantissa in units of 2^-24, rounded by the addition.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float e4m3_to_f32(std::uint8_t v) {
  const std::uint32_t sign = (v & 0x80u) << 24;
  const std::uint32_t magnitude = v & 0x7fu;
  if (magnitude == 0x7fu) return std::numeric_limits<float>::quiet_NaN();
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

std::uint8_t f32_to_e4m3(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  const auto sign = static_cast<std::uint8_t>((u >> 24) & 0x80u);
  if (std::isnan(v)) return static_cast<std::uint8_t>(sign | 0x7fu);
  const float magnitude = std::fabs(v);
  if (magnitude >= 448.0f) return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < 0x1p-6f) {  // subnormal: units of 2^-9
    return static_cast<std::uint8_t>(sign |
                                     static_cast<std::uint8_t>(std::nearbyint(magnitude * 512.0f)));
  }
  const auto m = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t rounded = m + 0x7ffffu + ((m >> 20) & 1u);
  const std::uint32_t code = (rounded >> 20) - (120u << 3);
  return static_cast<std::uint8_t>(sign | (code > 0x7eu ? 0x7eu : code));
}

float e8m0_to_f32(std::uint8_t v) {
  if (v == 255) return std::numeric_limits<float>::quiet_NaN();
  if (v == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 23);
}

float e2m1_to_f32(std::uint8_t v) {
  static constexpr std::array<float, 8> kMagnitudes = {0.0f, 0.5f, 1.0f, 1.5f,
                                                       2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[v & 7u];
  return (v & 8u) != 0 ? -magnitude : magnitude;
}

}  // namespace flotilla::tensor
