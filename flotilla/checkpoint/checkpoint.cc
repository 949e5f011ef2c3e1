#include "flotilla/checkpoint/checkpoint.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <cstring>

#include "flotilla/checkpoint/weight_files.h"
#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace bj = boost::json;
using tensor::DType;
using tensor::Tensor;

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  FLOTILLA_TRY(bj::value config, json::parse_file(folder + "/config.json"));
  if (!config.is_object())
    return Error{ErrorCode::kInvalidArgument, folder + "/config.json is no JSON object"};
  auto quantization = QuantizationConfig::parse(config);
  if (!quantization.ok()) {
    return Error{quantization.error().code, folder + "/" + quantization.error().message};
  }
  checkpoint.quantization_ = std::move(*quantization);
  checkpoint.config_ = std::make_shared<const bj::value>(std::move(config));

  FLOTILLA_TRY(WeightFiles files, find_weight_files(folder));
  for (std::size_t i = 0; i < files.names.size(); ++i) {
    const std::string path = folder + "/" + files.names[i];
    FLOTILLA_TRY(std::shared_ptr<MappedFile> mapped, MappedFile::open(path));
    FLOTILLA_TRY(SafetensorsHeader header,
                 parse_safetensors_header({mapped->data(), mapped->size()}, mapped->size(), path));
    for (TensorEntry& entry : header.tensors) {
      if (files.has_index) {
        // A tensor that the index does not give to this file is left over from something else.
        const auto place = files.index.find(entry.name);
        if (place == files.index.end() || place->second != files.names[i]) continue;
      }
      checkpoint.tensor_bytes_ += entry.bytes;
      const std::string name = entry.name;
      const auto [it, inserted] = checkpoint.tensors_.emplace(name, Entry{std::move(entry), i});
      if (!inserted) {
        return Error{ErrorCode::kDataLoss,
                     path + ": tensor '" + name + "' is also in " + files.names[it->second.file]};
      }
    }
    checkpoint.mapped_.push_back(std::move(mapped));
  }
  for (const auto& [name, file] : files.index) {
    if (!checkpoint.contains(name)) {
      return Error{ErrorCode::kDataLoss, folder + "/" + file + ": tensor '" + name +
                                             "' is missing, though the index says it is there"};
    }
  }
  checkpoint.weight_files_ = std::move(files.names);
  return checkpoint;
}

void Checkpoint::prefetch() const {
  // A checkpoint that does not fit beside what else is in memory would only push itself out again.
  const long pages = ::sysconf(_SC_AVPHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0 &&
      tensor_bytes_ > static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes)) {
    return;
  }
  for (const auto& file : mapped_) file->prefetch();
}

std::string Checkpoint::describe(std::string_view name) const {
  const auto it = tensors_.find(name);
  const std::string place =
      it == tensors_.end() ? folder_ : folder_ + "/" + weight_files_[it->second.file];
  return place + ": tensor '" + std::string(name) + "'";
}

Result<Tensor> Checkpoint::tensor(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return Error{ErrorCode::kNotFound, describe(name) + " is missing"};
  const TensorEntry& entry = it->second.tensor;
  const std::shared_ptr<MappedFile>& file = mapped_[it->second.file];
  if (entry.bytes > 0 && entry.offset % tensor::dtype_bytes(entry.dtype) != 0) {
    const std::shared_ptr<tensor::Buffer> copy = tensor::make_host_buffer(entry.bytes);
    std::memcpy(copy->data(), file->data() + entry.offset, entry.bytes);
    return Tensor(copy, 0, entry.shape, entry.dtype);
  }
  return Tensor(file, entry.offset, entry.shape, entry.dtype);
}

Result<std::string> Checkpoint::text_prefix() const {
  std::string found;
  int num_found = 0;
  for (const char* prefix : {"language_model.model.", "model.language_model.", "model.", ""}) {
    if (!has_matrix(std::string(prefix) + "embed_tokens")) continue;
    ++num_found;
    found = prefix;
  }
  if (num_found == 1) return found;
  if (num_found == 0) {
    return Error{ErrorCode::kNotFound,
                 folder_ +
                     ": tensor 'embed_tokens.weight' is missing (looked for it under "
                     "'language_model.model.', "
                     "'model.language_model.', 'model.' and without a prefix)"};
  }
  return Error{ErrorCode::kDataLoss,
               folder_ + ": several text models, each with its own 'embed_tokens'"};
}

}  // namespace flotilla::checkpoint
