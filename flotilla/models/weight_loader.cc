#include "flotilla/models/weight_loader.h"

#include <utility>

namespace flotilla::models {
using backend::Matrix;
using backend::Tensor;

WeightLoader::WeightLoader(const checkpoint::Checkpoint& checkpoint, backend::Backend& backend,
                           std::string prefix, const LoadProgress& progress)
    : checkpoint_(checkpoint), backend_(backend), prefix_(std::move(prefix)), progress_(progress) {}

void WeightLoader::count(const std::string& name) {
  const auto it = checkpoint_.tensors().find(name);
  if (it == checkpoint_.tensors().end() || !taken_.insert(name).second) return;
  bytes_taken_ += it->second.tensor.bytes;
}

Result<std::unique_ptr<Matrix>> WeightLoader::matrix(const std::string& module, std::int64_t n,
                                                     std::int64_t k) {
  const std::string path = prefix_ + module;
  FLOTILLA_TRY(const backend::StoredMatrix stored, checkpoint_.matrix(path, n, k, &notes_));
  auto prepared = backend_.prepare(stored);
  if (!prepared.ok()) {
    return Error{prepared.error().code, checkpoint_.folder() + ": tensor '" + path +
                                            ".weight': " + prepared.error().message};
  }
  for (const char* part : {".weight", ".scales", ".biases"}) count(path + part);
  num_parameters_ += n * k;
  matrix_bytes_ += static_cast<std::int64_t>((*prepared)->resident_bytes());
  if (progress_) progress_(bytes_taken_, checkpoint_.tensor_bytes());
  return prepared;
}

Result<std::unique_ptr<Matrix>> WeightLoader::gated(const std::string& gate, const std::string& up,
                                                    std::int64_t n, std::int64_t k) {
  std::vector<std::string> ignored;  // noted when the matrices are taken one by one
  FLOTILLA_TRY(const auto stored_gate, checkpoint_.matrix(prefix_ + gate, n, k, &ignored));
  FLOTILLA_TRY(const auto stored_up, checkpoint_.matrix(prefix_ + up, n, k, &ignored));
  auto prepared = backend_.prepare_gated(stored_gate, stored_up);
  if (!prepared.ok()) {
    return Error{prepared.error().code, checkpoint_.folder() + ": tensors '" + prefix_ + gate +
                                            "' and '" + prefix_ + up +
                                            "': " + prepared.error().message};
  }
  if (*prepared == nullptr) return prepared;
  notes_.insert(notes_.end(), ignored.begin(), ignored.end());
  for (const std::string& module : {gate, up}) {
    for (const char* part : {".weight", ".scales", ".biases"}) count(prefix_ + module + part);
  }
  num_parameters_ += 2 * n * k;
  matrix_bytes_ += static_cast<std::int64_t>((*prepared)->resident_bytes());
  if (progress_) progress_(bytes_taken_, checkpoint_.tensor_bytes());
  return prepared;
}

Result<Tensor> WeightLoader::vector(const std::string& name, std::int64_t n) {
  FLOTILLA_TRY(const Tensor host, checkpoint_.vector(prefix_ + name, backend::Shape{n}));
  count(prefix_ + name);
  num_parameters_ += n;
  return backend_.upload(host);
}

Result<float> WeightLoader::scalar(const std::string& name) {
  FLOTILLA_TRY(const Tensor host, checkpoint_.vector(prefix_ + name, backend::Shape{1}));
  count(prefix_ + name);
  ++num_parameters_;
  return *host.data<float>();
}

void WeightLoader::ignore_matrix(const std::string& module) {
  for (const char* part : {".weight", ".scales", ".biases"}) ignore(module + part);
}

Status WeightLoader::check_all_layer_tensors_taken() const {
  constexpr std::size_t kMaxNamed = 4;
  const std::string start = prefix_ + "layers.";
  std::string names;
  std::size_t num = 0;
  for (auto it = checkpoint_.tensors().lower_bound(start);
       it != checkpoint_.tensors().end() && it->first.starts_with(start); ++it) {
    if (taken_.contains(it->first)) continue;
    if (++num <= kMaxNamed) names += (names.empty() ? "'" : ", '") + it->first + "'";
  }
  if (num == 0) return ok_status();
  if (num > kMaxNamed) names += " and " + std::to_string(num - kMaxNamed) + " more";
  return Error{
      ErrorCode::kUnsupported,
      checkpoint_.folder() +
          ": tensors that this architecture, as config.json describes it, does not have: " + names};
}

}  // namespace flotilla::models
