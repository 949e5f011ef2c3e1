#include "flotilla/models/gemma4/gemma4_model.h"

#include <algorithm>
#include <utility>

#include "flotilla/ops/ops.h"

namespace flotilla::models::gemma4 {
using backend::Backend;
using backend::Shape;
using backend::Tensor;

struct Model::Scratchpad final : Workspace {
  std::vector<TokenId> ids;
  std::vector<std::int32_t> positions;
  std::vector<backend::KvRow> rows;  // pages are those of the layer at hand
  std::vector<TokenId> per_layer_ids;
  Tensor per_layer_inputs;  // of this step; empty without per-layer embeddings
};

Model::Model(Config config, Weights weights, ModelInfo info)
    : config_(std::move(config)), weights_(std::move(weights)), info_(std::move(info)) {
  for (std::int64_t l = 0; l < config_.num_layers(); ++l) {
    if (config_.shares_kv(l)) {
      layout_.layers.emplace_back(state::NoState{});
    } else if (config_.layers[static_cast<std::size_t>(l)] == LayerKind::kFull) {
      layout_.layers.emplace_back(state::PagedKv{config_.kv(l)});
    } else {
      layout_.layers.emplace_back(
          state::WindowKv{config_.kv(l), static_cast<int>(config_.sliding_window)});
    }
  }
}

namespace {

std::int64_t count_wanted(const ForwardInput& input) {
  std::int64_t count = 0;
  for (const ForwardRow& row : input.rows) {
    if (row.wants_logits == WantsLogits::kAll) count += static_cast<std::int64_t>(row.ids.size());
    if (row.wants_logits == WantsLogits::kLast) ++count;
  }
  return count;
}

}  // namespace

std::unique_ptr<Workspace> Model::make_workspace() const { return std::make_unique<Scratchpad>(); }

void Model::gather(Scratchpad& pad, const ForwardInput& input) const {
  pad.ids.clear();
  pad.positions.clear();
  pad.rows.clear();
  for (const ForwardRow& row : input.rows) {
    FLOTILLA_CHECK(!row.ids.empty(), "a forward row without tokens");
    FLOTILLA_CHECK(row.layers.size() == layout_.layers.size(),
                   "a forward row without a KV view per layer");
    pad.rows.push_back({.first_row = static_cast<int>(pad.ids.size()),
                        .num_tokens = static_cast<int>(row.ids.size()),
                        .first_position = row.first_position,
                        .kv = {}});
    std::int32_t position = row.first_position;
    for (const TokenId id : row.ids) {
      FLOTILLA_CHECK(id >= 0 && id < config_.vocab_size, "a token id outside the vocabulary");
      pad.ids.push_back(id);
      pad.positions.push_back(position++);
    }
  }
}

void Model::run_layer(Backend& backend, Scratchpad& pad, const ForwardInput& input,
                      std::size_t index, const Tensor& hidden, Tensor& normed) const {
  const Layer& layer = weights_.layers[index];
  const float eps = config_.rms_norm_eps;
  for (std::size_t i = 0; i < pad.rows.size(); ++i) {
    pad.rows[i].kv = input.rows[i].layers[static_cast<std::size_t>(layer.kv_layer)];
  }
  const Tensor attended = layer.attention->forward(backend, normed, pad.positions, pad.rows);
  normed = ops::norm_add_norm(backend, attended, layer.post_attention_norm, eps, 1.0f, hidden,
                              layer.pre_mlp_norm);
  const Tensor mixed = layer.mlp->forward(backend, normed);
  normed = Tensor();
  const Layer* next = index + 1 < weights_.layers.size() ? &weights_.layers[index + 1] : nullptr;
  if (!layer.per_layer) {
    if (next == nullptr) {
      ops::norm_add(backend, mixed, layer.post_mlp_norm, eps, layer.scalar, hidden);
    } else {
      normed = ops::norm_add_norm(backend, mixed, layer.post_mlp_norm, eps, layer.scalar, hidden,
                                  next->input_norm);
    }
    return;
  }
  ops::norm_add(backend, mixed, layer.post_mlp_norm, eps, 1.0f, hidden);

  const std::int64_t num_tokens = hidden.dim(0);
  const auto first = static_cast<std::int64_t>(index) * num_tokens;
  const Tensor gate = ops::gelu_mul(backend, ops::linear(backend, *layer.per_layer->gate, hidden),
                                    pad.per_layer_inputs.rows(first, first + num_tokens));
  ops::norm_add(backend, ops::linear(backend, *layer.per_layer->projection, gate),
                layer.per_layer->norm, eps, layer.scalar, hidden);
  if (next != nullptr) normed = ops::rms_norm(backend, hidden, next->input_norm, eps);
}

Tensor Model::compute_logits(Backend& backend, Scratchpad& pad, const ForwardInput& input,
                             const Tensor& hidden) const {
  const std::int64_t num_wanted = count_wanted(input);
  if (num_wanted == 0) return {};
  const Tensor wanted =
      backend.allocate(Shape{num_wanted, config_.hidden_size}, backend.activation_dtype());
  // The norm also collects the wanted rows; neighbours go in one call.
  std::int64_t next = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const auto flush = [&] {
    if (begin == end) return;
    backend.rms_norm({.x = hidden.rows(begin, end),
                      .weight = weights_.final_norm,
                      .eps = config_.rms_norm_eps,
                      .out = wanted.rows(next, next + end - begin)});
    next += end - begin;
  };
  for (std::size_t i = 0; i < input.rows.size(); ++i) {
    if (input.rows[i].wants_logits == WantsLogits::kNone) continue;
    const std::int64_t last = pad.rows[i].first_row + pad.rows[i].num_tokens;
    const std::int64_t first =
        input.rows[i].wants_logits == WantsLogits::kAll ? pad.rows[i].first_row : last - 1;
    if (first != end) {
      flush();
      begin = first;
    }
    end = last;
  }
  flush();
  if (input.observer != nullptr) (*input.observer)(config_.num_layers(), wanted);

  const Tensor logits =
      ops::linear_f32(backend, weights_.head ? *weights_.head : *weights_.embedding, wanted);
  if (config_.softcap) ops::softcap(backend, logits, *config_.softcap);
  return logits;
}

Tensor Model::forward(Backend& backend, Workspace& workspace, const ForwardInput& input) const {
  auto& pad = static_cast<Scratchpad&>(workspace);
  gather(pad, input);
  if (pad.ids.empty()) return {};
  const std::int64_t num_wanted = count_wanted(input);
  FLOTILLA_CHECK(
      input.greedy.empty() || static_cast<std::int64_t>(input.greedy.size()) == num_wanted,
      "one place for each chosen token");
  backend.begin_step({.model = number_,
                      .rows = pad.rows,
                      .num_wanted = num_wanted,
                      .greedy = !input.greedy.empty()});
  const StepResult result = run_step(backend, pad, input, !input.greedy.empty());
  backend.end_step();
  if (input.kept != nullptr) *input.kept = result.logits;
  const bool whole = input.greedy.empty() && input.kept == nullptr;
  if (whole || result.logits.empty()) return backend.to_host(result.logits);
  if (!input.greedy.empty()) {
    const Tensor chosen = backend.to_host(result.chosen);
    std::copy_n(chosen.data<TokenId>(), input.greedy.size(), input.greedy.begin());
  }
  return wanted_logits(backend, input, result.logits);
}

std::shared_ptr<backend::HostCopy> Model::start(Backend& backend, Workspace& workspace,
                                                const ForwardInput& input) const {
  // Per-layer embeddings are chosen on the host.
  if (weights_.per_layer || !backend.capabilities().chooses_tokens) return nullptr;
  auto& pad = static_cast<Scratchpad&>(workspace);
  gather(pad, input);
  const std::int64_t num_wanted = count_wanted(input);
  FLOTILLA_CHECK(num_wanted == static_cast<std::int64_t>(input.rows.size()) && num_wanted > 0,
                 "a started step has one token for each row");
  backend.begin_step(
      {.model = number_, .rows = pad.rows, .num_wanted = num_wanted, .greedy = true});
  const StepResult result = run_step(backend, pad, input, true);
  backend.end_step();
  return backend.fetch(result.chosen);
}

// The logits of rows with logits_too.
Tensor Model::wanted_logits(Backend& backend, const ForwardInput& input,
                            const Tensor& logits) const {
  std::vector<std::int32_t> rows;
  std::int32_t at = 0;
  for (const ForwardRow& row : input.rows) {
    if (row.wants_logits == WantsLogits::kNone) continue;
    const auto count =
        row.wants_logits == WantsLogits::kAll ? static_cast<std::int32_t>(row.ids.size()) : 1;
    for (std::int32_t i = 0; i < count && row.logits_too; ++i) rows.push_back(at + i);
    at += count;
  }
  if (rows.empty()) return {};
  const auto count = static_cast<std::int64_t>(rows.size());
  if (count == logits.dim(0)) return backend.to_host(logits);
  if (rows.back() - rows.front() + 1 == count) {
    return backend.to_host(logits.rows(rows.front(), rows.front() + count));
  }
  const Tensor gathered = backend.allocate(Shape{count, logits.dim(1)}, logits.dtype());
  backend.gather_rows({.source = logits, .rows = rows, .out = gathered});
  return backend.to_host(gathered);
}

Model::StepResult Model::run_step(Backend& backend, Scratchpad& pad, const ForwardInput& input,
                                  bool chooses) const {
  const Tensor hidden =
      ops::embedding(backend, *weights_.embedding, pad.ids, config_.embedding_scale, input.chosen);
  if (weights_.per_layer) {
    // Places of pictures and sound have no entry in the wide table.
    pad.per_layer_ids = pad.ids;
    for (TokenId& id : pad.per_layer_ids) {
      const bool placeholder =
          std::find(config_.placeholder_ids.begin(), config_.placeholder_ids.end(), id) !=
          config_.placeholder_ids.end();
      if (placeholder || id >= config_.per_layer_vocab) id = config_.padding_id;
    }
    pad.per_layer_inputs =
        compute_per_layer_inputs(backend, *weights_.per_layer, pad.per_layer_ids, hidden);
  }
  Tensor normed =
      ops::rms_norm(backend, hidden, weights_.layers[0].input_norm, config_.rms_norm_eps);
  for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
    if (input.observer != nullptr) (*input.observer)(static_cast<std::int64_t>(l), hidden);
    run_layer(backend, pad, input, l, hidden, normed);
  }
  StepResult result;
  result.logits = compute_logits(backend, pad, input, hidden);
  if (!chooses || result.logits.empty()) return result;
  result.chosen = backend.allocate(Shape{result.logits.dim(0)}, tensor::DType::kI32);
  backend.argmax({.x = result.logits, .out = result.chosen});
  return result;
}

}  // namespace flotilla::models::gemma4
