// An opened checkpoint folder: configuration and mapped tensors. Opening reads headers only.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/base/result.h"
#include "flotilla/checkpoint/mapped_file.h"
#include "flotilla/checkpoint/quantization.h"
#include "flotilla/checkpoint/safetensors.h"
#include "flotilla/tensor/tensor.h"

namespace flotilla::checkpoint {

// Immutable; copies share the mappings, and every tensor keeps its file mapped. Const members are
// thread-safe.
class Checkpoint {
 public:
  // `folder` holds config.json and *.safetensors in MLX or Hugging Face layout. Every header is
  // checked in full: afterwards no tensor points outside its file.
  static Result<Checkpoint> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const boost::json::value& config() const { return *config_; }
  const QuantizationConfig& quantization() const { return quantization_; }
  const std::vector<std::string>& weight_files() const { return weight_files_; }  // names, sorted
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }
  // Asks the kernel to read the weights ahead, if free memory holds them.
  void prefetch() const;

  struct Entry {
    TensorEntry tensor;
    std::size_t file = 0;  // into weight_files()
  };
  // By name, sorted.
  const std::map<std::string, Entry, std::less<>>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  // A view of the mapped file, or an aligned copy where the file's offset does not suit the type.
  // kNotFound names the folder and the tensor.
  Result<tensor::Tensor> tensor(std::string_view name) const;
  // A float tensor of shape `shape` as float32 (norm weights, scalars): a copy.
  Result<tensor::Tensor> vector(std::string_view name, const tensor::Shape& shape) const;

  // The matrix [n, k] of `module` (a tensor name without ".weight"), in the coding that its tensors
  // have. The shapes decide; where the metadata of config.json claim another coding, a line is
  // added to `notes` (may be null).
  Result<backend::StoredMatrix> matrix(std::string_view module, std::int64_t n, std::int64_t k,
                                       std::vector<std::string>* notes = nullptr) const;
  bool has_matrix(std::string_view module) const;
  // The sizes of a module as its tensors and the metadata give them, for tools that do not know [n,
  // k].
  Result<backend::StoredMatrix> matrix(std::string_view module,
                                       std::vector<std::string>* notes = nullptr) const;

  // What stands before "embed_tokens" and "layers.": the text model of an MLX, Hugging Face or
  // text-only file. An error when no such tensor, or more than one, exists.
  Result<std::string> text_prefix() const;

 private:
  Checkpoint() = default;
  std::string describe(std::string_view name) const;  // "folder/file: tensor 'name'"

  std::string folder_;
  std::shared_ptr<const boost::json::value> config_;
  QuantizationConfig quantization_;
  std::vector<std::string> weight_files_;
  std::vector<std::shared_ptr<MappedFile>> mapped_;
  std::map<std::string, Entry, std::less<>> tensors_;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace flotilla::checkpoint
