// A mixed load: clients that send one request after another, some of which hang up, against the
// same requests one at a time. Time to first token, gaps between tokens, throughput, leaks, and
// whether every answer equals its solo run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/engine/text_engine.h"

namespace flotilla::bench {

struct LoadOptions {
  int num_clients = 64;
  int requests_per_client = 2;
  std::int64_t min_prompt = 16;  // lengths are spread evenly over their logarithm
  std::int64_t max_prompt = 3500;
  std::int64_t min_output = 8;
  std::int64_t max_output = 64;
  int cancel_percent = 10;
  std::uint64_t seed = 1;
  int wave_size = 0;  // clients that begin together, the next ones wave_ms later; 0: all at once
  int wave_ms = 0;
};

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0, max = 0;
};
// Zeros when there are no samples.
Percentiles percentiles(std::vector<double> samples);

struct LoadResult {
  std::int64_t num_requests = 0;
  std::int64_t num_finished = 0;
  std::int64_t num_cancelled = 0;
  std::vector<std::string> errors = {};  // of requests that failed; empty in a sound engine
  std::int64_t num_different = 0;        // answers that are not those of the solo run
  std::int64_t prompt_tokens = 0, output_tokens = 0;  // of the finished ones
  double wall_s = 0;
  double solo_s = 0;  // the finished requests, one after another
  double solo_worst_first_token_s = 0;
  Percentiles first_token_s = {};
  Percentiles first_token_of_short_s = {};  // prompts of at most 64 tokens
  Percentiles gap_s = {};                   // between tokens of a stream
  // After everything has ended.
  std::uint32_t left_requests = 0;
  std::uint64_t left_bytes = 0;  // of pages that are neither free nor in the prefix cache
};

// `engine` must be idle. Blocks until all have ended. `vocab_size` bounds the made-up prompts.
LoadResult run_load(engine::TextEngine& engine, const LoadOptions& options);

}  // namespace flotilla::bench
