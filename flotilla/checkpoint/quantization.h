// What config.json says about quantisation: global values and overrides per module.
#pragma once

#include <boost/json/fwd.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/backend/backend.h"
#include "flotilla/base/result.h"

namespace flotilla::checkpoint {

// Coding of one module. `format` is one of the quantised formats.
struct Quantization {
  backend::WeightFormat format = backend::WeightFormat::kAffine;
  int bits = 4;
  int group_size = 64;
  bool operator==(const Quantization&) const = default;
};

// "affine 4-bit, groups of 64"; "mxfp4"
std::string to_string(const Quantization& quantization);
std::string_view to_string(backend::WeightFormat format);

// The file decides (a module is quantised when it has `.scales`); this is what the metadata claim.
class QuantizationConfig {
 public:
  // Reads "quantization", else "quantization_config". An absent block is a dense model. Unknown
  // modes, widths, group sizes, or the quant_method of another tool are errors.
  static Result<QuantizationConfig> parse(const boost::json::value& config);

  // nullopt: dense, or no statement. `module` is a tensor name without ".weight". Overrides match
  // by the whole path, then without the prefixes that converters disagree about, then by the
  // longest suffix of whole path parts.
  std::optional<Quantization> lookup(std::string_view module) const;
  const std::optional<Quantization>& global() const { return global_; }

 private:
  using Override = std::optional<Quantization>;  // nullopt: dense
  const Override* find_override(std::string_view module) const;

  std::optional<Quantization> global_;
  std::map<std::string, Override, std::less<>> overrides_;        // by path as written
  std::map<std::string, Override, std::less<>> short_overrides_;  // by path without prefixes
};

// `path` without "language_model.", "model." and their combinations in front.
std::string_view without_model_prefix(std::string_view path);

}  // namespace flotilla::checkpoint
