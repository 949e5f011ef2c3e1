#include "runner.h"

#include <algorithm>
#include <utility>

#include "flotilla/models/contiguous_kv.h"

namespace flotilla::reference_check {
namespace {

// What unwritten keys hold: a result that depends on them is visibly wrong.
constexpr float kGarbage = 1e6f;

}  // namespace

TokenId best_token(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Result<std::unique_ptr<Runner>> Runner::create(const checkpoint::Checkpoint& checkpoint,
                                               const backend::CpuOptions& options) {
  FLOTILLA_TRY(auto backend, backend::make_cpu_backend(options));
  FLOTILLA_TRY(auto model, models::load_model(checkpoint, *backend));
  return std::unique_ptr<Runner>(new Runner(std::move(backend), std::move(model)));
}

Runner::Runner(std::unique_ptr<backend::Backend> backend, std::unique_ptr<models::CausalLM> model)
    : backend_(std::move(backend)),
      model_(std::move(model)),
      workspace_(model_->make_workspace()) {}

std::vector<float> Runner::prefill(std::span<const TokenId> ids, std::size_t chunk,
                                   std::vector<float>* hidden) {
  models::ContiguousKv kv(model_->state_layout(), static_cast<std::int64_t>(ids.size()), kGarbage);
  const std::size_t step = chunk == 0 ? ids.size() : chunk;
  const models::HiddenObserver observer = [&](std::int64_t, const tensor::Tensor& state) {
    hidden->insert(hidden->end(), state.data<float>(),
                   state.data<float>() + state.shape().num_elements());
  };
  std::vector<float> logits;
  for (std::size_t first = 0; first < ids.size(); first += step) {
    const int position = static_cast<int>(first);
    const models::ForwardRow row{.ids = ids.subspan(first, std::min(step, ids.size() - first)),
                                 .first_position = position,
                                 .wants_logits = models::WantsLogits::kAll,
                                 .layers = kv.views(position)};
    const tensor::Tensor out =
        model_->forward(*backend_, *workspace_,
                        {.rows = {&row, 1}, .observer = hidden != nullptr ? &observer : nullptr});
    logits.insert(logits.end(), out.data<float>(), out.data<float>() + out.shape().num_elements());
  }
  return logits;
}

Continuation Runner::generate(std::span<const TokenId> ids, std::size_t num_tokens) {
  const std::vector<TokenId> prompt(ids.begin(), ids.end());
  const std::size_t whole = 0;
  return std::move(run_batch({&prompt, 1}, {&whole, 1}, num_tokens).front().continuation);
}

std::vector<Runner::BatchResult> Runner::run_batch(std::span<const std::vector<TokenId>> prompts,
                                                   std::span<const std::size_t> chunks,
                                                   std::size_t num_tokens) {
  struct Sequence {
    std::vector<TokenId> ids;  // prompt, then what was generated
    std::size_t num_done = 0;  // tokens whose keys are stored
    std::size_t num_prompt = 0;
    models::ContiguousKv kv;
  };
  const auto vocab = static_cast<std::size_t>(model_->info().vocab_size);
  std::vector<Sequence> sequences;
  for (const std::vector<TokenId>& prompt : prompts) {
    sequences.push_back(
        {prompt, 0, prompt.size(),
         models::ContiguousKv(model_->state_layout(),
                              static_cast<std::int64_t>(prompt.size() + num_tokens), kGarbage)});
  }
  std::vector<BatchResult> results(sequences.size());
  while (true) {
    std::vector<models::ForwardRow> rows;
    std::vector<std::size_t> active;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = sequences[i];
      if (s.num_done >= s.num_prompt && results[i].continuation.ids.size() == num_tokens) continue;
      const std::size_t open = s.ids.size() - s.num_done;
      const std::size_t take = chunks[i] == 0 ? open : std::min(open, chunks[i]);
      const int position = static_cast<int>(s.num_done);
      rows.push_back({.ids = std::span<const TokenId>(s.ids).subspan(s.num_done, take),
                      .first_position = position,
                      .wants_logits = models::WantsLogits::kAll,
                      .layers = s.kv.views(position)});
      active.push_back(i);
    }
    if (rows.empty()) return results;
    const tensor::Tensor out = model_->forward(*backend_, *workspace_, {.rows = rows});
    const float* next = out.data<float>();
    for (std::size_t r = 0; r < active.size(); ++r) {
      Sequence& s = sequences[active[r]];
      BatchResult& result = results[active[r]];
      const std::size_t taken = rows[r].ids.size();
      if (s.num_done < s.num_prompt)
        result.logits.insert(result.logits.end(), next, next + taken * vocab);
      s.num_done += taken;
      next += taken * vocab;
      if (s.num_done < s.num_prompt || num_tokens == 0) continue;
      const std::span<const float> last(next - vocab, vocab);
      result.continuation.logits.insert(result.continuation.logits.end(), last.begin(), last.end());
      result.continuation.ids.push_back(best_token(last));
      s.ids.push_back(result.continuation.ids.back());
    }
  }
}

}  // namespace flotilla::reference_check
