#include "flotilla/models/registry.h"

#include <array>
#include <boost/json.hpp>
#include <string>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/json/json.h"
#include "flotilla/models/gemma4/gemma4.h"

namespace flotilla::models {
namespace {

constexpr std::array<FamilyEntry, 4> kFamilies = {{
    {"gemma4", "Gemma4ForConditionalGeneration", &gemma4::make},
    {"gemma4_text", "Gemma4ForCausalLM", &gemma4::make},
    {"gemma4_unified", "Gemma4UnifiedForConditionalGeneration", &gemma4::make},
    {"gemma4_unified_text", "Gemma4UnifiedForCausalLM", &gemma4::make},
}};

std::string first_architecture(const boost::json::value& config) {
  const boost::json::value* list = json::find(config, "architectures");
  if (list == nullptr || !list->is_array() || list->get_array().empty() ||
      !list->get_array()[0].is_string())
    return "";
  const boost::json::string& name = list->get_array()[0].get_string();
  return std::string(name.data(), name.size());
}

}  // namespace

std::span<const FamilyEntry> families() { return kFamilies; }

Result<const FamilyEntry*> find_family(const checkpoint::Checkpoint& checkpoint) {
  const std::string file = checkpoint.folder() + "/config.json: ";
  const auto model_type = json::get_string(checkpoint.config(), "model_type");
  if (!model_type.ok()) return Error{model_type.error().code, file + model_type.error().message};
  const std::string architecture = first_architecture(checkpoint.config());
  std::string supported;
  for (const FamilyEntry& family : kFamilies) {
    if (*model_type ? **model_type == family.model_type : architecture == family.architecture)
      return &family;
    supported += (supported.empty() ? "" : ", ") + std::string(family.model_type);
  }
  const std::string found = *model_type             ? "model_type '" + **model_type + "'"
                            : !architecture.empty() ? "architecture '" + architecture + "'"
                                                    : "a model without 'model_type'";
  return Error{ErrorCode::kUnsupported,
               file + found + " is not supported (supported: " + supported + ")"};
}

Result<std::unique_ptr<CausalLM>> load_model(const checkpoint::Checkpoint& checkpoint,
                                             backend::Backend& backend,
                                             const LoadProgress& progress) {
  FLOTILLA_TRY(const FamilyEntry* family, find_family(checkpoint));
  checkpoint.prefetch();
  return family->make(checkpoint, backend, progress);
}

Status check_model(const checkpoint::Checkpoint& checkpoint, backend::Backend& backend) {
  FLOTILLA_TRY(const FamilyEntry* family, find_family(checkpoint));
  const auto made = family->make(checkpoint, backend, {});
  return made.ok() ? ok_status() : Status(made.error());
}

}  // namespace flotilla::models
