// What the operator says about running a model, beside its files.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::coordinator {

struct RuntimeParameters {
  // Bytes that stay in memory of a model of which a part stays on disk; in place of its size.
  std::optional<std::uint64_t> resident_bytes;
  std::string text = "{}";  // JSON as it was given
  // Members without effect, each with the reason: "resident_gb: 0 is no positive number".
  std::vector<std::string> ignored;
};

// Of an object of any members; one that is unknown or makes no sense is ignored, and said to be.
// kInvalidArgument for what is no object, or too large.
Result<RuntimeParameters> read_runtime_parameters(const boost::json::value& value);
Result<RuntimeParameters> read_runtime_parameters(const std::string& text);

}  // namespace flotilla::coordinator
