#include "flotilla/coordinator/catalog/runtime_parameters.h"

#include <boost/json.hpp>

#include "flotilla/gates/memory.h"
#include "flotilla/json/json.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

constexpr std::size_t kMaxText = 16u << 10, kMaxShown = 40;

std::string shown(const bj::value& value) {
  std::string text = bj::serialize(value);
  if (text.size() > kMaxShown) {
    text.resize(kMaxShown);
    text += "...";
  }
  return text;
}

}  // namespace

Result<RuntimeParameters> read_runtime_parameters(const bj::value& value) {
  if (!value.is_object()) {
    return Error{ErrorCode::kInvalidArgument, "runtime_parameters is a JSON object",
                 "runtime_parameters"};
  }
  RuntimeParameters out;
  out.text = bj::serialize(value);
  if (out.text.size() > kMaxText) {
    return Error{ErrorCode::kTooLarge,
                 "runtime_parameters has " + std::to_string(out.text.size()) +
                     " bytes and the limit is " + std::to_string(kMaxText),
                 "runtime_parameters"};
  }
  for (const auto& [name, member] : value.get_object()) {
    if (name != "resident_gb") {
      out.ignored.push_back(std::string(name) + ": unknown");
      continue;
    }
    if (member.is_number())
      out.resident_bytes = gates::resident_override(member.to_number<double>());
    if (!out.resident_bytes)
      out.ignored.push_back("resident_gb: " + shown(member) + " is no positive number");
  }
  return out;
}

Result<RuntimeParameters> read_runtime_parameters(const std::string& text) {
  FLOTILLA_TRY(const bj::value value, json::parse(text, {.max_bytes = kMaxText, .max_depth = 8}));
  return read_runtime_parameters(value);
}

}  // namespace flotilla::coordinator
