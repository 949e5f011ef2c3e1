// Ours against a ggml graph: the products alone.
#pragma once

#include <string>
#include <vector>

#include "bench/peers/measure.h"
#include "bench/peers/shapes.h"
#include "flotilla/backend/backend.h"

namespace flotilla::peers {

struct LinearOptions {
  std::string peer_folder;
  bool best = false;  // each side with the newest instructions it can use; else both with AVX2
  int threads = 2;
  bool pin = false;  // ours
  int rounds = 11;
  double min_seconds = 0.1;  // of one sample
  Clock clock = Clock::kWall;
  std::vector<int> rows = {1, 2, 3, 4, 6, 8, 12, 16, 64, 240};
};

void bench_linears(const ModelShape& shape, const LinearOptions& options);

}  // namespace flotilla::peers
