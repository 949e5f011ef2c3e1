// Parts of `flotilla-coordinator models`.
#pragma once

#include <string>
#include <vector>

#include "apps/flotilla_coordinator/admin_client.h"

namespace flotilla::apps {

struct ModelsArguments {
  AdminTarget target;
  std::string source, model, alias;
  std::int64_t version = 0;
  // Of publish:
  std::string family, runtime = "{}";
  std::vector<std::string> capabilities;
  std::int64_t context_length = 0;
  double min_memory_gib = 0;
  bool activate = false;
  std::string hub, token;
  bool as_json = false, remove = false;
};

// Finds out what the folder or URL has, and has the coordinator take it in.
Status publish_model(const ModelsArguments& arguments);

}  // namespace flotilla::apps
