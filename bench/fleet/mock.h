// An HTTP server that answers chat completions from the script: the upstream of a reverse proxy.
#pragma once

#include <string>

#include "bench/fleet/script.h"
#include "flotilla/base/result.h"

namespace flotilla::bench {

struct MockOptions {
  std::string listen = "http://127.0.0.1:8090";
  Script script;
  int cpu = -1;
};
// Serves until SIGTERM or SIGINT.
Status run_mock(const MockOptions& options);

}  // namespace flotilla::bench
