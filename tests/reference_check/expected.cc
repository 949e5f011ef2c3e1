#include "expected.h"

#include <cstring>
#include <map>
#include <memory>

#include "flotilla/checkpoint/mapped_file.h"
#include "flotilla/checkpoint/safetensors.h"

namespace flotilla::reference_check {
namespace {

class Reader {
 public:
  static Result<Reader> open(const std::string& path) {
    Reader reader;
    reader.path_ = path;
    FLOTILLA_TRY(reader.file_, checkpoint::MappedFile::open(path));
    FLOTILLA_TRY(checkpoint::SafetensorsHeader header,
                 checkpoint::parse_safetensors_header({reader.file_->data(), reader.file_->size()},
                                                      reader.file_->size(), path));
    for (checkpoint::TensorEntry& entry : header.tensors)
      reader.entries_[entry.name] = std::move(entry);
    return reader;
  }

  bool has(const std::string& name) const { return entries_.contains(name); }

  // `num_elements` < 0: any.
  template <class T>
  Result<std::vector<T>> read(const std::string& name, tensor::DType dtype,
                              std::int64_t num_elements) const {
    const auto it = entries_.find(name);
    if (it == entries_.end())
      return Error{ErrorCode::kNotFound, path_ + ": '" + name + "' is missing"};
    const checkpoint::TensorEntry& entry = it->second;
    const std::int64_t have = entry.shape.num_elements();
    if (entry.dtype != dtype || (num_elements >= 0 && have != num_elements)) {
      return Error{ErrorCode::kDataLoss, path_ + ": '" + name + "' is " +
                                             std::string(tensor::dtype_name(entry.dtype)) + " " +
                                             entry.shape.to_string() + ", needed are " +
                                             std::to_string(num_elements) + " of " +
                                             std::string(tensor::dtype_name(dtype))};
    }
    std::vector<T> values(static_cast<std::size_t>(have));
    if (entry.bytes > 0) std::memcpy(values.data(), file_->data() + entry.offset, entry.bytes);
    return values;
  }

 private:
  std::string path_;
  std::shared_ptr<checkpoint::MappedFile> file_;
  std::map<std::string, checkpoint::TensorEntry> entries_;
};

Result<Prompt> read_prompt(const Reader& reader, const std::string& name, std::int64_t vocab_size) {
  Prompt prompt;
  prompt.name = name;
  FLOTILLA_TRY(prompt.ids, reader.read<TokenId>(name + ".ids", tensor::DType::kI32, -1));
  if (prompt.ids.empty()) return Error{ErrorCode::kDataLoss, name + ".ids is empty"};
  for (const TokenId id : prompt.ids) {
    if (id < 0 || id >= vocab_size)
      return Error{ErrorCode::kDataLoss, name + ".ids has an id outside the vocabulary"};
  }
  const auto num_ids = static_cast<std::int64_t>(prompt.ids.size());
  FLOTILLA_TRY(prompt.logits,
               reader.read<float>(name + ".logits", tensor::DType::kF32, num_ids * vocab_size));
  FLOTILLA_TRY(prompt.greedy, reader.read<TokenId>(name + ".greedy", tensor::DType::kI32, -1));
  FLOTILLA_TRY(prompt.margins, reader.read<float>(name + ".margin", tensor::DType::kF32,
                                                  static_cast<std::int64_t>(prompt.greedy.size())));
  if (reader.has(name + ".hidden")) {
    FLOTILLA_TRY(prompt.hidden, reader.read<float>(name + ".hidden", tensor::DType::kF32, -1));
  }
  return prompt;
}

}  // namespace

Result<Expected> read_expected(const std::string& folder, std::int64_t vocab_size) {
  FLOTILLA_TRY(const Reader reader, Reader::open(folder + "/expected.safetensors"));
  Expected expected;
  for (int i = 0; reader.has("p" + std::to_string(i) + ".ids"); ++i) {
    FLOTILLA_TRY(Prompt prompt, read_prompt(reader, "p" + std::to_string(i), vocab_size));
    expected.prompts.push_back(std::move(prompt));
  }
  while (reader.has("v" + std::to_string(expected.num_picture_cases) + ".logits"))
    ++expected.num_picture_cases;
  if (expected.prompts.empty()) {
    return Error{ErrorCode::kDataLoss, folder + "/expected.safetensors: no prompt 'p0.ids'"};
  }
  return expected;
}

}  // namespace flotilla::reference_check
