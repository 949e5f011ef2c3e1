// The one interface of every text model. A model is const after load; everything about a request is
// passed in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/state/layer_state.h"

namespace flotilla::checkpoint {
class Checkpoint;
}

namespace flotilla::models {

enum class WantsLogits { kNone, kLast, kAll };

// A run of consecutive tokens of one sequence: a prefill chunk or a decode row. The KV views (one
// per layer, indexed as StateLayout::layers; unused for NoState) already have room for all of the
// row's positions.
struct ForwardRow {
  std::span<const TokenId> ids;
  int first_position = 0;
  WantsLogits wants_logits = WantsLogits::kNone;
  bool logits_too = false;  // where ForwardInput asks for tokens or keeps the logits
  std::span<const tensor::KvView> layers;
};

// For tests: called with the residual stream [num_tokens, hidden_size] that enters layer 0, 1, ...,
// and after the last layer with the final normed state of the wanted positions.
using HiddenObserver = std::function<void(std::int64_t layer, const tensor::Tensor& hidden)>;

struct ForwardInput {
  std::span<const ForwardRow> rows;
  const HiddenObserver* observer = nullptr;
  // Not empty: one place for each wanted position. The most probable token (ties: the lowest id) is
  // chosen where the logits are and written here (-1: they are not finite), and the logits of rows
  // with logits_too alone come back.
  std::span<TokenId> greedy = {};
  // Not null: is given the logits of all wanted positions, in memory of the backend and valid until
  // the next call; those of rows with logits_too come back besides.
  tensor::Tensor* kept = nullptr;
  // Of start(): not empty: the token of row i, which has one, is what the step before chose for its
  // row chosen[i]; the row's own id stands for it.
  std::span<const std::int32_t> chosen = {};
};

// Facts that the engine and the tools need, read from the checkpoint.
struct ModelInfo {
  std::string family;  // "gemma4"
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;  // max_position_embeddings
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_parameters = 0;
  std::int64_t weight_bytes = 0;     // bytes of weights that one decode step reads
  std::vector<TokenId> eos_ids;      // union of every source
  int max_concurrent_sequences = 0;  // 0: no limit; 1: the sequential route
};

// Scratch memory of one runner, grown on demand and reused between steps. Not shared between
// threads.
class Workspace {
 public:
  virtual ~Workspace() = default;
};

class CausalLM {
 public:
  virtual ~CausalLM() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const state::StateLayout& state_layout() const = 0;
  virtual std::unique_ptr<Workspace> make_workspace() const = 0;
  // Returns logits [number of wanted positions, vocab_size], float32, rows in input order; valid
  // until the next call with the same workspace; in memory that the program can read. Throws
  // DeviceError only.
  virtual tensor::Tensor forward(backend::Backend& backend, Workspace& workspace,
                                 const ForwardInput& input) const = 0;
  // Begins a step in which every row wants its most probable token (int32, -1: logits that are not
  // finite) and nothing else, and does not wait for it. Null where the model or the backend cannot.
  virtual std::shared_ptr<backend::HostCopy> start(backend::Backend&, Workspace&,
                                                   const ForwardInput&) const {
    return nullptr;
  }
};

// Bytes of weights taken so far and in the whole checkpoint (which may hold more than the model
// uses).
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Builds the model that config.json names (one table in registry.cc). Errors name file, tensor and
// both shapes. The model keeps the mapped files it needs; the checkpoint itself may go.
Result<std::unique_ptr<CausalLM>> load_model(const checkpoint::Checkpoint& checkpoint,
                                             backend::Backend& backend,
                                             const LoadProgress& progress = {});
// Whether load_model() would do. The weights are not read, unless `backend` re-orders them.
Status check_model(const checkpoint::Checkpoint& checkpoint, backend::Backend& backend);

}  // namespace flotilla::models
