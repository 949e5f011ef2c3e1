#include "apps/flotilla/model_argument.h"

#include <filesystem>
#include <vector>

#include "flotilla/base/text.h"
#include "flotilla/checkpoint/model_folder.h"

namespace flotilla::apps {
namespace fs = std::filesystem;
namespace {
constexpr const char* kBundledModel = "flotilla-tiny";
}

std::string default_models_dir() {
  std::error_code ec;
  if (fs::is_directory("models", ec)) return "models";
  const fs::path program = fs::read_symlink("/proc/self/exe", ec);
  if (!ec) {
    for (const char* relative : {"../share/flotilla/models", "../../../models"}) {
      const fs::path candidate = program.parent_path() / relative;
      if (fs::is_directory(candidate, ec)) return fs::weakly_canonical(candidate, ec).string();
    }
  }
  return "models";
}

Result<std::string> resolve_model(const std::string& argument, const std::string& models_dir) {
  std::error_code ec;
  if (!argument.empty() && fs::is_directory(argument, ec)) return argument;
  if (!argument.empty() && argument.find('/') != std::string::npos) {
    return Error{ErrorCode::kNotFound, "no model folder at " + argument};
  }
  FLOTILLA_TRY(const auto found, checkpoint::scan_models(models_dir));
  std::vector<std::string> names;
  std::string list;
  for (const auto& model : found) {
    names.push_back(model.name);
    list += (list.empty() ? "" : ", ") + model.name;
    if (model.name == argument || (argument.empty() && found.size() == 1)) return model.folder;
  }
  if (argument.empty()) {
    for (const auto& model : found) {
      if (model.name == kBundledModel) return model.folder;
    }
    return Error{ErrorCode::kInvalidArgument, found.empty()
                                                  ? "no model in " + models_dir
                                                  : "which model? " + models_dir + " has " + list};
  }
  std::string message = "no model '" + argument + "' in " + models_dir;
  if (const auto near = nearest_name(argument, names)) {
    message += "; did you mean '" + *near + "'?";
  } else if (!list.empty()) {
    message += "; it has " + list;
  }
  return Error{ErrorCode::kNotFound, message};
}

}  // namespace flotilla::apps
