// Fills the tensors of a shape with random weights and writes them, sharded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/checkpoint/synth_shape.h"

namespace flotilla::checkpoint {

struct SynthOptions {
  std::string folder;          // created; must not hold a config.json yet
  std::string tokenizer_from;  // a model folder whose tokenizer and template files are copied
  std::uint64_t shard_bytes = std::uint64_t{4} << 30;
  std::uint64_t seed = 1;
  int num_threads = 0;  // that write a file each; 0: one per processor
  // Bytes so far and in all; one call at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

struct SynthWritten {
  std::uint64_t num_bytes = 0;
  std::int64_t num_parameters = 0;
  std::size_t num_files = 0;
};

// The same shape and seed give the same bytes. config.json comes last: a folder that has it is
// complete.
Result<SynthWritten> write_synthetic(const SynthShape& shape, const SynthOptions& options);

}  // namespace flotilla::checkpoint
