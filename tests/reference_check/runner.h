// Runs a model without an engine: whole prompts, chunks, batches and greedy continuations.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/models/causal_lm.h"

namespace flotilla::reference_check {

struct Continuation {
  std::vector<TokenId> ids;
  std::vector<float> logits;  // [ids, vocab]: what each id was chosen from
};

class Runner {
 public:
  static Result<std::unique_ptr<Runner>> create(const checkpoint::Checkpoint& checkpoint,
                                                const backend::CpuOptions& options);

  const models::CausalLM& model() const { return *model_; }
  std::string device() const { return backend_->capabilities().device; }

  // Logits of every position, [ids, vocab]. `chunk` tokens per step; 0: all at once. `hidden` (may
  // be null) receives [layers + 1, ids, hidden] and needs chunk 0.
  std::vector<float> prefill(std::span<const TokenId> ids, std::size_t chunk,
                             std::vector<float>* hidden = nullptr);

  // The best token again and again; equal logits go to the lower id.
  Continuation generate(std::span<const TokenId> ids, std::size_t num_tokens);

  // Several sequences in common steps: sequence i enters in chunks of chunks[i] (0: whole) and
  // decodes as soon as its prompt is in, while others still prefill. Each result holds the prompt's
  // logits and the continuation.
  struct BatchResult {
    std::vector<float> logits;
    Continuation continuation;
  };
  std::vector<BatchResult> run_batch(std::span<const std::vector<TokenId>> prompts,
                                     std::span<const std::size_t> chunks, std::size_t num_tokens);

 private:
  Runner(std::unique_ptr<backend::Backend> backend, std::unique_ptr<models::CausalLM> model);

  std::unique_ptr<backend::Backend> backend_;
  std::unique_ptr<models::CausalLM> model_;
  std::unique_ptr<models::Workspace> workspace_;
};

// Index of the largest value, the lowest of equal ones.
TokenId best_token(std::span<const float> logits);

}  // namespace flotilla::reference_check
