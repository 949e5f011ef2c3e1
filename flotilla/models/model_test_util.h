// For tests: a model without an engine, and checkpoints derived from others.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/models/causal_lm.h"

namespace boost::json {
class value;
}

namespace flotilla::models {

class TestModel {
 public:
  static Result<std::unique_ptr<TestModel>> load(const std::string& folder);

  const CausalLM& model() const { return *model_; }
  // Logits of every position, [ids, vocab], in steps of `chunk` tokens (0: all at once).
  std::vector<float> logits(std::span<const TokenId> ids, std::size_t chunk = 0);
  // Called with each step's logits, returns the next token or -1 to stop.
  using Choose = std::function<TokenId(std::span<const float> logits)>;
  void generate(std::span<const TokenId> prompt, std::size_t max_tokens, const Choose& choose);

 private:
  TestModel(std::unique_ptr<backend::Backend> backend, std::unique_ptr<CausalLM> model);
  std::unique_ptr<backend::Backend> backend_;
  std::unique_ptr<CausalLM> model_;
  std::unique_ptr<Workspace> workspace_;
};

// Writes a copy of the checkpoint `from` into the existing folder `to`. `rename` gives the names
// under which a tensor is written, none to leave it out; `edit` changes config.json.
Status derive_checkpoint(const std::string& from, const std::string& to,
                         const std::function<std::vector<std::string>(const std::string&)>& rename,
                         const std::function<void(boost::json::value&)>& edit);

}  // namespace flotilla::models
