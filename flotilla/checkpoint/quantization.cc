#include "flotilla/checkpoint/quantization.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace bj = boost::json;
using backend::WeightFormat;
namespace {

struct Mode {
  std::string_view name;
  WeightFormat format;
  int bits;
  int group_size;
};
// With the values that a block without them means.
constexpr std::array<Mode, 4> kModes = {{{"affine", WeightFormat::kAffine, 4, 64},
                                         {"mxfp4", WeightFormat::kMxfp4, 4, 32},
                                         {"mxfp8", WeightFormat::kMxfp8, 8, 32},
                                         {"nvfp4", WeightFormat::kNvfp4, 4, 16}}};

Result<Quantization> read_block(const bj::value& block, const std::string& where) {
  FLOTILLA_TRY(const std::optional<std::string> name, json::get_string(block, "mode", where));
  // A block without a mode is affine, also where the global mode is another.
  const std::string_view wanted = name ? std::string_view(*name) : std::string_view("affine");
  const auto* const mode =
      std::find_if(kModes.begin(), kModes.end(), [&](const Mode& m) { return m.name == wanted; });
  if (mode == kModes.end()) {
    return Error{ErrorCode::kUnsupported, "config.json: " + where + ".mode '" +
                                              std::string(wanted) +
                                              "' is none of affine, mxfp4, mxfp8, nvfp4"};
  }
  FLOTILLA_TRY(const std::optional<std::int64_t> bits, json::get_int(block, "bits", 1, 64, where));
  FLOTILLA_TRY(const std::optional<std::int64_t> group,
               json::get_int(block, "group_size", 1, 65536, where));
  const Quantization result{mode->format, static_cast<int>(bits.value_or(mode->bits)),
                            static_cast<int>(group.value_or(mode->group_size))};
  const bool affine = mode->format == WeightFormat::kAffine;
  constexpr std::array kBits = {2, 3, 4, 5, 6, 8};
  constexpr std::array kGroups = {32, 64, 128};
  const bool good_bits = affine ? std::find(kBits.begin(), kBits.end(), result.bits) != kBits.end()
                                : result.bits == mode->bits;
  const bool good_group =
      affine ? std::find(kGroups.begin(), kGroups.end(), result.group_size) != kGroups.end()
             : result.group_size == mode->group_size;
  if (!good_bits || !good_group) {
    return Error{ErrorCode::kUnsupported,
                 "config.json: " + where + ": " + std::string(mode->name) + " with " +
                     std::to_string(result.bits) + " bits and groups of " +
                     std::to_string(result.group_size) + " is not supported"};
  }
  return result;
}

}  // namespace

std::string_view to_string(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "float32";
    case WeightFormat::kF16:
      return "float16";
    case WeightFormat::kBF16:
      return "bfloat16";
    case WeightFormat::kAffine:
      return "affine";
    case WeightFormat::kMxfp4:
      return "mxfp4";
    case WeightFormat::kMxfp8:
      return "mxfp8";
    case WeightFormat::kNvfp4:
      return "nvfp4";
  }
  return "unknown";
}

std::string to_string(const Quantization& quantization) {
  if (quantization.format != WeightFormat::kAffine)
    return std::string(to_string(quantization.format));
  return "affine " + std::to_string(quantization.bits) + "-bit, groups of " +
         std::to_string(quantization.group_size);
}

std::string_view without_model_prefix(std::string_view path) {
  for (bool stripped = true; stripped;) {
    stripped = false;
    for (const std::string_view prefix : {"language_model.", "model."}) {
      if (path.starts_with(prefix)) {
        path.remove_prefix(prefix.size());
        stripped = true;
      }
    }
  }
  return path;
}

Result<QuantizationConfig> QuantizationConfig::parse(const bj::value& config) {
  QuantizationConfig result;
  std::string where = "quantization";
  const bj::value* block = json::find(config, where);
  if (block == nullptr) {
    where = "quantization_config";
    block = json::find(config, where);
    if (block == nullptr) return result;
    FLOTILLA_TRY(const std::optional<std::string> method,
                 json::get_string(*block, "quant_method", where));
    if (method && *method != "mlx") {
      return Error{ErrorCode::kUnsupported, "config.json: quantization_config.quant_method '" +
                                                *method + "' is not supported"};
    }
  }
  if (!block->is_object()) {
    return Error{ErrorCode::kInvalidArgument, "config.json: '" + where + "' must be an object"};
  }
  FLOTILLA_TRY(result.global_, read_block(*block, where));
  for (const auto& member : block->get_object()) {
    const bj::value& value = member.value();
    const std::string path(member.key());
    Override entry;
    if (value.is_object()) {
      FLOTILLA_TRY(entry, read_block(value, where + "." + path));
    } else if (!value.is_bool()) {
      continue;  // the global values and whatever else a converter notes
    } else if (value.get_bool()) {
      entry = result.global_;
    }
    result.short_overrides_[std::string(without_model_prefix(path))] = entry;
    result.overrides_[path] = entry;
  }
  return result;
}

const QuantizationConfig::Override* QuantizationConfig::find_override(
    std::string_view module) const {
  if (const auto it = overrides_.find(module); it != overrides_.end()) return &it->second;
  std::string_view rest = without_model_prefix(module);
  while (true) {
    if (const auto it = short_overrides_.find(rest); it != short_overrides_.end())
      return &it->second;
    const std::size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return nullptr;
    rest.remove_prefix(dot + 1);
  }
}

std::optional<Quantization> QuantizationConfig::lookup(std::string_view module) const {
  if (const Override* entry = find_override(module)) return *entry;
  return global_;
}

}  // namespace flotilla::checkpoint
