// The batching engine without its thread: accept, step, emit. Engine runs it; tests step it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/engine/output_pipeline.h"
#include "flotilla/engine/progress_lease.h"
#include "flotilla/engine/row_sampler.h"
#include "flotilla/engine/scheduler.h"
#include "flotilla/engine/step_runner.h"
#include "flotilla/engine/text_engine.h"
#include "flotilla/grammar/mask_worker.h"
#include "flotilla/sampling/sampler.h"

namespace flotilla::engine {

struct EngineOptions {
  SchedulerOptions scheduler;
  state::PrefixCacheOptions prefix_cache;
  LeaseOptions leases;
  std::size_t kv_bytes = std::size_t{256} << 20;
  std::int64_t context_length = 0;
  std::size_t vocab_size = 0;
  std::vector<TokenId> eos_ids;
  std::int64_t max_waiting = 256;  // requests beyond those that may run; more are refused
  std::string model;               // for messages
  std::string model_digest;        // separates caches
  std::uint64_t first_id = 1;      // of requests
  // Called by the engine's thread, which ends then, when all requests have had their last event.
  std::function<void()> on_device_lost = {};
  // Has room for kv_bytes of the layout's pages; null: host memory.
  std::shared_ptr<state::PageMemory> pages = {};
  int num_threads = 1;           // that sample rows, the engine's own included
  const Clock* clock = nullptr;  // must outlive the engine; null: the system's
};

// What the engine needs of tokenizer and parser. Thread-safe.
class OutputFactory {
 public:
  virtual ~OutputFactory() = default;
  virtual std::unique_ptr<OutputPipeline> make_output(const PreparedJob& job) const = 0;
  virtual std::string token_bytes(TokenId id) const = 0;  // for logprobs
};

// Told of every mask that is wanted: has it computed, soon and elsewhere. Must not block.
using MaskRequest = std::function<void(std::shared_ptr<grammar::ConstrainedOutput>)>;

// Owned by one thread; sinks run on it.
class EngineCore {
 public:
  // Without `request_mask` masks are computed in the step.
  EngineCore(const EngineOptions& options, const state::StateLayout& layout,
             std::unique_ptr<StepRunner> runner, std::shared_ptr<const OutputFactory> outputs,
             MaskRequest request_mask = {});
  ~EngineCore();  // requests that are left get no finish; see end_all()

  enum class StepOutcome { kIdle, kDone, kFailed };

  void accept(RequestId id, std::shared_ptr<const PreparedJob> job, EventSink sink);
  void cancel(RequestId id);
  void resume_output(RequestId id);
  // Schedules, runs, samples, emits. kFailed: the device threw; the requests of the step have
  // failed, the others are as before. Throws when the device is lost.
  StepOutcome step();
  // Something that the next step could do without being told anything new.
  bool has_work() const { return scheduler_.has_runnable(); }
  // When a request is given up if nothing moves until then.
  std::optional<Clock::Instant> next_deadline();
  // Drops what the prefix cache holds for nobody but itself.
  void clear_prefix_cache();
  // Ends every request with `error`.
  void end_all(const Error& error);

  const std::string& last_failure() const { return last_failure_; }
  EngineStats stats() const;
  std::uint64_t num_preemptions() const { return scheduler_.num_preemptions(); }
  void check_integrity() const { scheduler_.check_integrity(); }
  const sampling::SamplerScratch& scratch() const { return row_sampler_.scratch(); }  // for tests
  // The ids that finished since the last call.
  std::vector<RequestId> take_finished();

 private:
  struct Generation {
    std::shared_ptr<const PreparedJob> job;
    EventSink sink;
    sampling::Sampler sampler;
    std::unique_ptr<OutputPipeline> output;
    std::shared_ptr<grammar::ConstrainedOutput> constraint;  // null: any token may come
    std::vector<TokenId> stop_ids;                           // end the output
    std::int64_t max_tokens = 0;                             // the context's end included
    ProgressLease lease;
    Sequence* sequence = nullptr;    // null once it has ended
    std::vector<float> logits = {};  // of the next token, while its mask is awaited
  };

  // What a step gave for a row that wants its next token: one of these, or nothing when the output
  // ends with an error or its mask is awaited and the logits are kept for it.
  struct Answer {
    Sequence* sequence = nullptr;
    Generation* generation = nullptr;
    std::optional<TokenId> chosen = {};
    std::optional<backend::Shortlist> shortlist = {};
    std::span<const float> logits = {};
    std::optional<Error> error = {};
    bool awaits_mask = false;
  };

  Result<Generation> make_generation(std::shared_ptr<const PreparedJob> job, EventSink sink) const;
  // Marks the rows that need no logits, or not here.
  void let_choose(std::vector<ScheduledRow>& rows) const;
  // Asks the runner for what stays with it. Throws as it does.
  std::vector<Answer> collect_answers(const std::vector<ScheduledRow>& rows,
                                      std::span<const float> logits);
  void ask_for_kept(std::span<Answer*> answers);
  // Takes the mask of the next token if there is one to take.
  static void take_mask(Answer& answer);
  // Samples side by side what is not chosen; goes on with every row.
  void take_answers(std::span<Answer> answers);
  void take_answer(Answer& answer, SamplingTask* task);
  SamplingTask make_task(const Answer& answer) const;
  // Samples the token of each row that waited for its mask and has it now.
  void sample_awaited();
  // Tokens that may not come next, where no constraint says so.
  static std::span<const TokenId> banned(const Generation& generation);
  // A token of this sequence is known, and its state was good.
  void continue_with(Sequence& sequence, Generation& generation, TokenId id,
                     std::optional<TokenLogprob> logprob);
  void want_mask(Generation& generation);
  // Takes a generated token, new or fed again; finishes the output when it was the last.
  void take_token(Generation& generation, TokenId id, std::optional<TokenLogprob> logprob);
  TokenLogprob make_logprob(TokenId id, const sampling::RowLogprobs& row) const;
  void emit(RequestId id, Generation& generation);
  void fail(RequestId id, Error error);
  void collect_finished();
  void observe_progress(Clock::Instant now);
  void end_overdue();

  const EngineOptions options_;
  const Clock& clock_;
  state::PagePool pool_;
  std::unique_ptr<state::PrefixCache> cache_;  // null when it is off
  std::unique_ptr<StepRunner> runner_;
  const std::shared_ptr<const OutputFactory> outputs_;
  Scheduler scheduler_;
  std::map<RequestId, Generation> generations_;
  RowSampler row_sampler_;
  const MaskRequest request_mask_;
  std::string last_failure_;
  std::vector<RequestId> finished_;
  std::uint64_t prompt_tokens_total_ = 0;
  std::uint64_t completion_tokens_total_ = 0;
};

}  // namespace flotilla::engine
