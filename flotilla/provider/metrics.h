// What /metrics of `flotilla serve` says: the engines as they are now.
#pragma once

#include <string>

#include "flotilla/provider/model_manager.h"

namespace flotilla::provider {

// Prometheus text format; one series per model. Thread-safe.
std::string render_metrics(const ModelManager& models);

}  // namespace flotilla::provider
