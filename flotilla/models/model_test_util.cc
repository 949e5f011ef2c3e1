#include "flotilla/models/model_test_util.h"

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <utility>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/safetensors_writer.h"
#include "flotilla/models/contiguous_kv.h"

namespace flotilla::models {

Result<std::unique_ptr<TestModel>> TestModel::load(const std::string& folder) {
  FLOTILLA_TRY(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));
  FLOTILLA_TRY(auto backend, backend::make_cpu_backend({.num_threads = 1}));
  FLOTILLA_TRY(auto model, load_model(checkpoint, *backend));
  return std::unique_ptr<TestModel>(new TestModel(std::move(backend), std::move(model)));
}

TestModel::TestModel(std::unique_ptr<backend::Backend> backend, std::unique_ptr<CausalLM> model)
    : backend_(std::move(backend)),
      model_(std::move(model)),
      workspace_(model_->make_workspace()) {}

std::vector<float> TestModel::logits(std::span<const TokenId> ids, std::size_t chunk) {
  ContiguousKv kv(model_->state_layout(), static_cast<std::int64_t>(ids.size()), 1e6f);
  const std::size_t step = chunk == 0 ? ids.size() : chunk;
  std::vector<float> all;
  for (std::size_t first = 0; first < ids.size(); first += step) {
    const int position = static_cast<int>(first);
    const ForwardRow row{.ids = ids.subspan(first, std::min(step, ids.size() - first)),
                         .first_position = position,
                         .wants_logits = WantsLogits::kAll,
                         .layers = kv.views(position)};
    const tensor::Tensor out = model_->forward(*backend_, *workspace_, {.rows = {&row, 1}});
    all.insert(all.end(), out.data<float>(), out.data<float>() + out.shape().num_elements());
  }
  return all;
}

void TestModel::generate(std::span<const TokenId> prompt, std::size_t max_tokens,
                         const Choose& choose) {
  ContiguousKv kv(model_->state_layout(), static_cast<std::int64_t>(prompt.size() + max_tokens),
                  1e6f);
  std::vector<TokenId> ids(prompt.begin(), prompt.end());
  int position = 0;
  for (std::size_t i = 0; i < max_tokens; ++i) {
    const ForwardRow row{.ids = ids,
                         .first_position = position,
                         .wants_logits = WantsLogits::kLast,
                         .layers = kv.views(position)};
    const tensor::Tensor out = model_->forward(*backend_, *workspace_, {.rows = {&row, 1}});
    position += static_cast<int>(ids.size());
    const TokenId next = choose({out.data<float>(), static_cast<std::size_t>(out.dim(1))});
    if (next < 0) return;
    ids.assign(1, next);
  }
}

Status derive_checkpoint(const std::string& from, const std::string& to,
                         const std::function<std::vector<std::string>(const std::string&)>& rename,
                         const std::function<void(boost::json::value&)>& edit) {
  FLOTILLA_TRY(const checkpoint::Checkpoint source, checkpoint::Checkpoint::open(from));
  std::vector<checkpoint::TensorEntry> entries;
  std::vector<tensor::Tensor> tensors;
  for (const auto& [name, entry] : source.tensors()) {
    FLOTILLA_TRY(const tensor::Tensor tensor, source.tensor(name));
    for (std::string& renamed : rename(name)) {
      entries.push_back(
          {.name = std::move(renamed), .dtype = tensor.dtype(), .shape = tensor.shape()});
      tensors.push_back(tensor);
    }
  }
  FLOTILLA_TRY(auto writer, checkpoint::SafetensorsWriter::create(to + "/model.safetensors",
                                                                  std::move(entries)));
  for (const tensor::Tensor& tensor : tensors) {
    FLOTILLA_TRY_STATUS(writer.write({tensor.bytes(), tensor.num_bytes()}));
  }
  FLOTILLA_TRY_STATUS(writer.close());
  boost::json::value config = source.config();
  edit(config);
  std::ofstream(to + "/config.json") << boost::json::serialize(config);
  return ok_status();
}

}  // namespace flotilla::models
