#include "flotilla/engine/engine_core.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "flotilla/backend/device_error.h"
#include "flotilla/base/check.h"
#include "flotilla/base/secure_zero.h"
#include "flotilla/log/log.h"

namespace flotilla::engine {
namespace {

const Clock& system_clock() {
  static const SystemClock clock;  // it has no state
  return clock;
}

std::unique_ptr<state::PrefixCache> make_cache(const state::PrefixCacheOptions& options,
                                               const state::StateLayout& layout,
                                               state::PagePool& pool) {
  if (!options.enabled) return nullptr;
  return std::make_unique<state::PrefixCache>(options, layout, pool);
}

// A runner that chooses tokens begins the next step before this one's tokens are known.
SchedulerOptions with_room_ahead(SchedulerOptions options, bool chooses) {
  if (chooses) options.room_ahead = 1;
  return options;
}

// A request that was given up in good order may leave its state; one that fell over a number or an
// exception leaves nothing, and takes along what it had in common with the cache.
Ending ending_of(FinishReason reason, const std::optional<Error>& error) {
  if (reason != FinishReason::kError) return Ending::kKeep;
  const bool fault =
      !error || error->code == ErrorCode::kModelFault || error->code == ErrorCode::kInternal;
  return fault ? Ending::kFault : Ending::kDiscard;
}

}  // namespace

EngineCore::EngineCore(const EngineOptions& options, const state::StateLayout& layout,
                       std::unique_ptr<StepRunner> runner,
                       std::shared_ptr<const OutputFactory> outputs, MaskRequest request_mask)
    : options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      pool_(options.kv_bytes, options.pages
                                  ? options.pages
                                  : std::make_shared<state::HostPageMemory>(options.kv_bytes)),
      cache_(make_cache(options.prefix_cache, layout, pool_)),
      runner_(std::move(runner)),
      outputs_(std::move(outputs)),
      scheduler_(with_room_ahead(options.scheduler, runner_->can_choose()), layout, pool_,
                 cache_.get(), options.model_digest),
      row_sampler_(options.num_threads),
      request_mask_(std::move(request_mask)) {}

EngineCore::~EngineCore() = default;

Result<EngineCore::Generation> EngineCore::make_generation(std::shared_ptr<const PreparedJob> job,
                                                           EventSink sink) const {
  const ChatJob& chat = job->job;
  const auto num_prompt = static_cast<std::int64_t>(job->prompt_ids.size());
  FLOTILLA_TRY_STATUS(
      sampling::validate(chat.sampling, static_cast<std::int64_t>(options_.vocab_size)));
  const std::int64_t room = options_.context_length - num_prompt;
  if (num_prompt == 0 || room < 1) {
    return Error{ErrorCode::kContextLength, "prompt of " + std::to_string(num_prompt) +
                                                " tokens does not fit the context of " +
                                                std::to_string(options_.context_length)};
  }
  const auto in_vocabulary = [this](TokenId id) {
    return id >= 0 && static_cast<std::size_t>(id) < options_.vocab_size;
  };
  if (!std::all_of(job->prompt_ids.begin(), job->prompt_ids.end(), in_vocabulary) ||
      !std::all_of(chat.resume_ids.begin(), chat.resume_ids.end(), in_vocabulary)) {
    return Error{ErrorCode::kInvalidArgument, "a token id is outside the vocabulary"};
  }
  std::vector<TokenId> stop_ids;
  if (!chat.ignore_eos) stop_ids = options_.eos_ids;
  stop_ids.insert(stop_ids.end(), chat.stop_token_ids.begin(), chat.stop_token_ids.end());
  std::erase_if(stop_ids, [&](TokenId id) { return !in_vocabulary(id); });
  std::unique_ptr<OutputPipeline> output = outputs_->make_output(*job);
  std::shared_ptr<grammar::ConstrainedOutput> constraint;
  if (job->constraint) {
    constraint = std::make_shared<grammar::ConstrainedOutput>(
        grammar::OutputConstraint(job->constraint, options_.vocab_size, stop_ids));
  }
  sampling::Sampler sampler(chat.sampling, job->prompt_ids);
  const std::int64_t max_tokens = chat.max_tokens > 0 ? std::min(room, chat.max_tokens) : room;
  const auto first_token =
      chat.first_token_within.count() > 0 ? chat.first_token_within : options_.leases.first_token;
  return Generation{.job = std::move(job),
                    .sink = std::move(sink),
                    .sampler = std::move(sampler),
                    .output = std::move(output),
                    .constraint = std::move(constraint),
                    .stop_ids = std::move(stop_ids),
                    .max_tokens = max_tokens,
                    .lease = ProgressLease(clock_.now(), first_token)};
}

void EngineCore::accept(RequestId id, std::shared_ptr<const PreparedJob> job, EventSink sink) {
  Result<Generation> made = Error{ErrorCode::kInternal, ""};
  try {
    made = make_generation(job, sink);
  } catch (const std::exception& error) {
    made = Error{ErrorCode::kInternal, error.what()};
  }
  if (!made.ok()) {
    TokenEvent event;
    event.request = id;
    event.finish = Finish{.reason = FinishReason::kError, .error = made.error()};
    event.finish->usage.prompt_tokens = static_cast<std::int64_t>(job->prompt_ids.size());
    finished_.push_back(id);
    try {
      sink(std::move(event));
    } catch (const std::exception& error) {
      log::error("event_sink_failed", {{"request", id.value}, {"what", error.what()}});
    }
    return;
  }
  prompt_tokens_total_ += job->prompt_ids.size();
  std::vector<TokenId> tokens = job->prompt_ids;
  const std::vector<TokenId>& resumed = job->job.resume_ids;
  tokens.insert(tokens.end(), resumed.begin(), resumed.end());
  Generation& generation = generations_.emplace(id, std::move(made).value()).first->second;
  generation.sequence = &scheduler_.add(id, job->job.tenant, std::move(tokens));
  try {
    for (const TokenId token : resumed) {
      if (generation.output->finished()) break;
      take_token(generation, token, std::nullopt);
    }
    want_mask(generation);
  } catch (const std::exception& error) {
    generation.output->finish(FinishReason::kError, Error{ErrorCode::kInternal, error.what()});
  }
  if (!resumed.empty()) emit(id, generation);
  collect_finished();
}

void EngineCore::cancel(RequestId id) {
  const auto it = generations_.find(id);
  if (it == generations_.end()) return;
  it->second.output->finish(FinishReason::kCancelled);
  emit(id, it->second);
  collect_finished();
}

void EngineCore::resume_output(RequestId id) { scheduler_.set_reader_full(id, false); }

void EngineCore::clear_prefix_cache() {
  if (cache_) cache_->clear();
}

void EngineCore::observe_progress(Clock::Instant now) {
  for (auto& [id, generation] : generations_) {
    const Sequence* sequence = generation.sequence;
    if (sequence == nullptr) continue;
    const bool has_token = generation.output->num_tokens() > 0;
    Phase phase = has_token && sequence->num_pending() <= 1 ? Phase::kDecode : Phase::kPrefill;
    if (!sequence->holds_pages()) phase = Phase::kWaiting;
    if (sequence->reader_full) phase = Phase::kReaderFull;
    const auto progress =
        static_cast<std::int64_t>(sequence->tokens.size()) + sequence->state.num_positions();
    generation.lease.observe(phase, progress, has_token, now);
  }
}

void EngineCore::end_overdue() {
  const Clock::Instant now = clock_.now();
  observe_progress(now);
  std::vector<RequestId> overdue;
  for (const auto& [id, generation] : generations_) {
    const auto end = generation.lease.ends(options_.leases);
    if (generation.sequence != nullptr && end && *end <= now) overdue.push_back(id);
  }
  for (const RequestId id : overdue) {
    fail(id, generations_.at(id).lease.reason(options_.leases, now));
  }
  if (!overdue.empty()) collect_finished();
}

std::optional<Clock::Instant> EngineCore::next_deadline() {
  observe_progress(clock_.now());
  std::optional<Clock::Instant> first;
  for (const auto& [id, generation] : generations_) {
    const auto end = generation.lease.ends(options_.leases);
    if (end && (!first || *end < *first)) first = end;
  }
  return first;
}

EngineCore::StepOutcome EngineCore::step() {
  end_overdue();
  sample_awaited();
  std::vector<ScheduledRow> rows = scheduler_.schedule();
  if (rows.empty()) {
    Sequence* stuck = scheduler_.stuck();
    if (stuck == nullptr) return StepOutcome::kIdle;
    fail(stuck->id, Error{ErrorCode::kResourceExhausted,
                          "a sequence of " + std::to_string(stuck->tokens.size()) +
                              " tokens does not fit the key-value memory of " +
                              std::to_string(options_.kv_bytes) + " bytes"});
    collect_finished();
    return StepOutcome::kDone;
  }
  for (const ScheduledRow& row : rows) {
    const auto& generation = generations_.at(row.sequence->id);
    const auto prompt = static_cast<std::int64_t>(generation.job->prompt_ids.size());
    generation.output->set_cached_tokens(
        std::clamp<std::int64_t>(row.sequence->cached_tokens, 0, prompt));
  }
  let_choose(rows);
  std::vector<Answer> answers;
  std::optional<Error> failure;
  std::exception_ptr lost;
  try {
    answers = collect_answers(rows, runner_->run(rows));
  } catch (const backend::DeviceError& error) {
    failure = Error{ErrorCode::kModelFault, std::string("a step failed: ") + error.what()};
    if (error.lost()) lost = std::current_exception();
  } catch (const std::bad_alloc&) {
    failure = Error{ErrorCode::kResourceExhausted, "out of memory in a step"};
  } catch (const std::exception& error) {
    failure = Error{ErrorCode::kModelFault, std::string("a step failed: ") + error.what()};
  } catch (...) {
    failure = Error{ErrorCode::kModelFault, "a step failed"};
  }
  if (failure) {
    last_failure_ = failure->message;
    std::vector<RequestId> ids;
    for (const ScheduledRow& row : rows) ids.push_back(row.sequence->id);
    for (const RequestId id : ids) fail(id, *failure);
    collect_finished();
    if (lost) std::rethrow_exception(lost);
    return StepOutcome::kFailed;
  }
  scheduler_.complete(rows);
  take_answers(answers);
  collect_finished();
  return StepOutcome::kDone;
}

void EngineCore::take_token(Generation& generation, TokenId id,
                            std::optional<TokenLogprob> logprob) {
  OutputPipeline& output = *generation.output;
  generation.sampler.accept(id);
  const bool ends = std::find(generation.stop_ids.begin(), generation.stop_ids.end(), id) !=
                    generation.stop_ids.end();
  if (generation.constraint && !ends) {
    if (Status status = generation.constraint->constraint().accept(id); !status.ok()) {
      output.finish(FinishReason::kError, std::move(status).error());
      return;
    }
  }
  if (ends) {
    output.push_end(id, std::move(logprob));
    output.finish(FinishReason::kStop);
  } else if (output.push(id, std::move(logprob)) ||
             (generation.constraint && generation.constraint->constraint().is_finished())) {
    output.finish(FinishReason::kStop);
  } else if (output.num_tokens() >= generation.max_tokens) {
    output.finish(FinishReason::kLength);
  }
}

void EngineCore::emit(RequestId id, Generation& generation) {
  if (!generation.output->has_event()) return;
  bool wants_more = true;
  TokenEvent event = generation.output->take_event(id);
  Ending ending = Ending::kKeep;
  if (event.finish) ending = ending_of(event.finish->reason, event.finish->error);
  try {
    wants_more = generation.sink(std::move(event));
  } catch (const std::exception& error) {
    log::error("event_sink_failed", {{"request", id.value}, {"what", error.what()}});
    generation.output->finish(FinishReason::kCancelled);  // nobody is left to tell
  } catch (...) {
    log::error("event_sink_failed", {{"request", id.value}});
    generation.output->finish(FinishReason::kCancelled);
  }
  const bool finished = generation.output->finished();
  if (finished) {
    generation.sequence = nullptr;
    row_sampler_.wipe();
    secure_clear(generation.logits);
    scheduler_.remove(id, ending);
    finished_.push_back(id);
  } else if (!wants_more) {
    scheduler_.set_reader_full(id, true);
  }
}

void EngineCore::fail(RequestId id, Error error) {
  Generation& generation = generations_.at(id);
  generation.output->finish(FinishReason::kError, std::move(error));
  emit(id, generation);
}

void EngineCore::collect_finished() {
  for (const RequestId id : finished_) generations_.erase(id);
}

void EngineCore::end_all(const Error& error) {
  std::vector<RequestId> ids;
  for (const auto& [id, generation] : generations_) ids.push_back(id);
  for (const RequestId id : ids) fail(id, error);
  collect_finished();
}

std::vector<RequestId> EngineCore::take_finished() { return std::exchange(finished_, {}); }

EngineStats EngineCore::stats() const {
  EngineStats stats;
  stats.num_running = static_cast<std::uint32_t>(scheduler_.num_running());
  stats.num_waiting = static_cast<std::uint32_t>(scheduler_.num_waiting());
  stats.kv_bytes_used = pool_.used_bytes() - pool_.idle_bytes();
  stats.kv_bytes_total = pool_.budget_bytes();
  stats.prompt_tokens_total = prompt_tokens_total_;
  stats.completion_tokens_total = completion_tokens_total_;
  stats.num_preemptions = scheduler_.num_preemptions();
  if (cache_) stats.prefix_cache = cache_->stats();
  return stats;
}

}  // namespace flotilla::engine
