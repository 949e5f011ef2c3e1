// Which model folder a command line means.
#pragma once

#include <string>

#include "flotilla/base/result.h"

namespace flotilla::apps {

// Where models lie unless told otherwise: ./models, else beside the program as installed or as
// built.
std::string default_models_dir();

// `argument` is a folder, or the name of one in `models_dir`; empty: the only model there, else the
// bundled one. The error lists what there is.
Result<std::string> resolve_model(const std::string& argument, const std::string& models_dir);

}  // namespace flotilla::apps
