#include "flotilla/checkpoint/model_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <limits>
#include <map>
#include <string_view>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/model_digest.h"
#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace bj = boost::json;
namespace {

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string folder_name(const std::string& folder) {
  std::error_code ec;
  const std::filesystem::path real = std::filesystem::canonical(folder, ec);
  return ec ? folder : real.filename().string();
}

std::string text_member(const bj::value& object, std::string_view key) {
  const auto value = json::get_string(object, key);
  return value.ok() && *value ? **value : std::string();
}

void read_identity(const bj::value& config, ModelSummary& summary) {
  const bj::value* text = json::find(config, "text_config");
  const bj::value& inner = text != nullptr && text->is_object() ? *text : config;
  summary.family = text_member(inner, "model_type");
  if (summary.family.empty()) summary.family = text_member(config, "model_type");
  const bj::value* architectures = json::find(config, "architectures");
  if (architectures != nullptr && architectures->is_array() &&
      !architectures->get_array().empty() && architectures->get_array()[0].is_string()) {
    const bj::string& name = architectures->get_array()[0].get_string();
    summary.architecture.assign(name.data(), name.size());
  }
  const auto context =
      json::get_int(inner, "max_position_embeddings", 0, std::numeric_limits<std::int32_t>::max());
  if (context.ok() && *context) summary.context_length = **context;
}

// The type that holds most bytes among tensors that are no part of a quantised module.
std::string dominant_type(const Checkpoint& checkpoint) {
  std::map<std::string_view, std::uint64_t> bytes;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    bytes[tensor::dtype_name(entry.tensor.dtype)] += entry.tensor.bytes;
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : std::string(most->first);
}

void fill_from_checkpoint(const Checkpoint& checkpoint, ModelSummary& summary) {
  summary.num_bytes = checkpoint.tensor_bytes();
  summary.num_files = checkpoint.weight_files().size();
  const bool packed = std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                                  [](const auto& item) { return item.first.ends_with(".scales"); });
  const auto& global = checkpoint.quantization().global();
  summary.quantization =
      packed ? (global ? to_string(*global) : "quantised") : dominant_type(checkpoint);
}

std::vector<std::string> scalar_fields(const bj::value& config) {
  const bj::value* text = json::find(config, "text_config");
  const bj::value& inner = text != nullptr && text->is_object() ? *text : config;
  std::vector<std::string> lines;
  for (const auto& member : inner.get_object()) {
    if (member.value().is_object() || member.value().is_array() || member.value().is_null())
      continue;
    lines.push_back(std::string(member.key()) + " = " + bj::serialize(member.value()));
  }
  return lines;
}

}  // namespace

ModelSummary summarize_model(const std::string& folder) {
  ModelSummary summary;
  summary.folder = folder;
  summary.name = folder_name(folder);
  const auto checkpoint = Checkpoint::open(folder);
  if (checkpoint.ok()) {
    read_identity(checkpoint->config(), summary);
    fill_from_checkpoint(*checkpoint, summary);
  } else {
    summary.problems.push_back(checkpoint.error().message);
    if (const auto config = json::parse_file(folder + "/config.json"); config.ok())
      read_identity(*config, summary);
  }
  if (!is_file(folder + "/tokenizer.json"))
    summary.problems.push_back(folder + ": no tokenizer.json");
  if (const auto digest = model_digest(folder, DigestMode::kCacheOnly); digest.ok())
    summary.digest = digest->hex;
  return summary;
}

Result<std::vector<ModelSummary>> scan_models(const std::string& root) {
  std::vector<ModelSummary> models;
  if (is_file(root + "/config.json")) {
    models.push_back(summarize_model(root));
    return models;
  }
  std::vector<std::string> folders;
  std::error_code ec;
  for (std::filesystem::directory_iterator it(root, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".") || !is_file(root + "/" + name + "/config.json")) continue;
    folders.push_back(root + "/" + name);
  }
  if (ec)
    return Error{ErrorCode::kNotFound, "cannot read the folder " + root + ": " + ec.message()};
  std::sort(folders.begin(), folders.end());
  for (const std::string& folder : folders) models.push_back(summarize_model(folder));
  return models;
}

Result<ModelInspection> inspect_model(const std::string& folder) {
  FLOTILLA_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  ModelInspection result;
  result.summary = summarize_model(folder);
  result.config = scalar_fields(checkpoint.config());
  constexpr std::string_view kWeight = ".weight";
  for (const auto& [name, entry] : checkpoint.tensors()) {
    const std::size_t dot = name.rfind('.');
    const std::string module = name.substr(0, dot == std::string::npos ? 0 : dot);
    const bool quantized = !module.empty() && checkpoint.contains(module + ".scales");
    if (quantized && !name.ends_with(kWeight) && checkpoint.contains(module + ".weight")) continue;
    TensorRow row;
    row.name = name;
    row.format = std::string(tensor::dtype_name(entry.tensor.dtype));
    row.shape = entry.tensor.shape.to_string();
    row.num_bytes = entry.tensor.bytes;
    row.file = checkpoint.weight_files()[entry.file];
    std::int64_t elements = entry.tensor.shape.num_elements();
    if (quantized && name.ends_with(kWeight)) {
      row.name = module;
      for (const char* part : {".scales", ".biases"}) {
        if (const auto it = checkpoint.tensors().find(module + part);
            it != checkpoint.tensors().end()) {
          row.num_bytes += it->second.tensor.bytes;
        }
      }
      const auto stored = checkpoint.matrix(module, &result.notes);
      if (stored.ok()) {
        row.format = to_string(Quantization{stored->format, stored->bits, stored->group_size});
        row.shape = tensor::Shape{stored->n, stored->k}.to_string();
        elements = stored->n * stored->k;
      } else {
        result.notes.push_back(stored.error().message);
      }
    }
    result.num_parameters += elements;
    result.tensors.push_back(std::move(row));
  }
  return result;
}

}  // namespace flotilla::checkpoint
