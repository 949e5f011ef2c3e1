// Fills the tensors of a shape with random weights and writes them, sharded.
#pragma once

#include <cstdint>
#include <string>

#include "flotilla/base/result.h"
#include "model_shape.h"

namespace flotilla::make_checkpoint {

struct WriteOptions {
  std::string folder;          // created; must not hold a config.json yet
  std::string tokenizer_from;  // a model folder whose tokenizer and template files are copied
  std::uint64_t shard_bytes = std::uint64_t{4} << 30;
  std::uint64_t seed = 1;
};

struct Written {
  std::uint64_t num_bytes = 0;
  std::int64_t num_parameters = 0;
  std::size_t num_files = 0;
};

// The same shape and seed give the same bytes. config.json comes last: a folder that has it is
// complete.
Result<Written> write_checkpoint(const ModelShape& shape, const WriteOptions& options);

}  // namespace flotilla::make_checkpoint
