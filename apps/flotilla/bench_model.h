// Measures decode and prefill of one model beside a loop that only reads memory, in alternating
// rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::apps {

struct BenchOptions {
  std::string folder;
  int threads = 0;
  bool pin_threads = false;
  std::string device = "auto";           // see choose_device()
  std::vector<std::int64_t> rows{1, 8};  // sequences decoded together
  std::vector<std::int64_t> depths;  // tokens already in each sequence; empty: 128 and close to 4k
  std::int64_t prefill_tokens = 512;
  std::int64_t prefill_chunk = 0;  // 0: 256, or 2048 on a card
  int rounds = 5;
  double seconds_per_sample = 1.0;
};

// Median and spread of one figure over the rounds.
struct Figure {
  double median = 0, min = 0, max = 0;
};
Figure summarize(std::vector<double> samples);

struct DecodeResult {
  std::int64_t rows = 0, depth = 0;
  std::uint64_t state_bytes = 0;  // of all rows
  bool fits = true;               // else there are no figures
  Figure tokens_per_second;
  Figure gigabytes_per_second;  // weights read once a step, plus the keys and values of every row
  Figure share_of_read_loop;    // round by round
};
struct PrefillResult {
  std::int64_t tokens = 0, depth = 0;
  Figure tokens_per_second;
};
struct BenchResult {
  std::string device;
  std::int64_t num_parameters = 0, weight_bytes = 0;
  Figure read_loop;              // GB/s
  std::uint64_t state_room = 0;  // bytes
  std::vector<DecodeResult> decode;
  std::vector<PrefillResult> prefill;
};

// The step is whole: forward pass, logits, sampling. Keys and values before `depth` are zeros:
// their content does not change the time.
Result<BenchResult> bench_model(BenchOptions options);

}  // namespace flotilla::apps
