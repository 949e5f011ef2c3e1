// Which files of a folder hold the weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::checkpoint {

struct WeightFiles {
  std::vector<std::string> names;  // relative to the folder, sorted
  // Tensor -> file, when an index says so; other tensors of those files are then ignored.
  std::map<std::string, std::string> index;
  bool has_index = false;
};

// model.safetensors.index.json rules where it exists; else model.safetensors; else a complete set
// of model-0000x-of-0000y.safetensors; else a single *.safetensors. Missing files are all named in
// one error. File names of the index must be plain names: a path that leaves the folder is refused.
Result<WeightFiles> find_weight_files(const std::string& folder);

}  // namespace flotilla::checkpoint
