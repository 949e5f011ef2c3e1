// Takes the weights of one model out of a checkpoint and remembers which were taken.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/base/result.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/models/causal_lm.h"

namespace flotilla::models {

// Used by one thread while a model is built.
class WeightLoader {
 public:
  // Names are given relative to `prefix`. References must outlive the loader.
  WeightLoader(const checkpoint::Checkpoint& checkpoint, backend::Backend& backend,
               std::string prefix, const LoadProgress& progress);

  Result<std::unique_ptr<backend::Matrix>> matrix(const std::string& module, std::int64_t n,
                                                  std::int64_t k);
  // Two matrices of one shape for Backend::linear_gated(); null, and nothing is taken, where the
  // backend wants them apart.
  Result<std::unique_ptr<backend::Matrix>> gated(const std::string& gate, const std::string& up,
                                                 std::int64_t n, std::int64_t k);
  // Float32 copy of a norm weight, where the backend reads it.
  Result<backend::Tensor> vector(const std::string& name, std::int64_t n);
  // A tensor of one number.
  Result<float> scalar(const std::string& name);
  bool has(const std::string& name) const { return checkpoint_.contains(prefix_ + name); }
  // Marks tensors that may be in the file though the model does not use them.
  void ignore(const std::string& name) { taken_.insert(prefix_ + name); }
  void ignore_matrix(const std::string& module);

  // kUnsupported when a tensor under "<prefix>layers." was neither taken nor ignored: the file
  // holds a model that this code would compute wrongly.
  Status check_all_layer_tensors_taken() const;

  std::int64_t num_parameters() const { return num_parameters_; }
  // Resident bytes of the matrices made.
  std::int64_t matrix_bytes() const { return matrix_bytes_; }
  // Where metadata and file disagree.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void count(const std::string& name);

  const checkpoint::Checkpoint& checkpoint_;
  backend::Backend& backend_;
  const std::string prefix_;
  const LoadProgress& progress_;
  std::set<std::string> taken_;
  std::uint64_t bytes_taken_ = 0;
  std::int64_t num_parameters_ = 0;
  std::int64_t matrix_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace flotilla::models
