// A schedule: which requests come when, with which sizes the engine runs, and what happens to them.
// Made from a seed; written as one line of JSON, so that a failing one can be kept and replayed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::schedules {

// What decides the answer of one request. Prompts are made-up ids: the first `prefix_tokens` of a
// prefix that other requests share, then a tail of its own.
struct RequestSpec {
  std::uint64_t prefix = 0;  // which of the shared prefixes
  std::int64_t prefix_tokens = 0;
  std::uint64_t tail = 0;
  std::int64_t tail_tokens = 1;
  std::int64_t max_tokens = 8;
  std::int64_t min_tokens = 0;
  bool ignore_eos = true;
  int top_logprobs = -1;
  std::vector<TokenId> stop_token_ids = {};
  std::string stop = {};  // at most one; the text of token n is "n "
  sampling::SamplingParams sampling = {.temperature = 0};

  std::int64_t num_prompt() const { return prefix_tokens + tail_tokens; }
};

enum class Fault {
  kNone,
  kNan,          // one logit of the row of generation index fault_at is a NaN
  kOutputThrow,  // the pipeline throws at token fault_at
  kSinkThrow,    // the sink throws at its event fault_at
};

// One request of a schedule.
struct Arrival {
  RequestSpec request = {};
  std::int64_t step = 0;  // it comes before this step
  std::string tenant = {};
  std::int64_t resume_at = -1;  // its answer's first so many tokens come with it; -1: a new request
  std::int64_t cancel_step = -1;  // -1: never
  std::int64_t pause_every = 0;   // the reader is full after every so many events; 0: never
  std::int64_t pause_steps = 1;   // how long
  Fault fault = Fault::kNone;
  std::int64_t fault_at = 0;
};

struct Schedule {
  std::uint64_t variant = 0;  // index of the backend: threads, instruction set, packing
  std::int64_t max_batch_tokens = 256;
  std::int64_t prefill_chunk = 128;
  std::int64_t max_sequences = 32;
  std::int64_t max_bypass = 64;
  std::int64_t force_preemption_every = 0;
  // The page pool: what its longest request needs, and so many percent of that on top.
  std::int64_t spare_memory_percent = 1000;
  std::int64_t prefix_cache_percent = 0;    // of the pool, for cached prefixes; 0: no cache
  std::int64_t evict_every = 0;             // steps; 0: only when memory asks for it
  std::int64_t checkpoint_interval = 4096;  // tokens
  std::int64_t failing_step = -1;           // the device fails in it
  std::vector<Arrival> arrivals = {};
};

// What a generator must know of the model.
struct Limits {
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;
  std::uint64_t num_variants = 1;
  std::uint64_t num_light = 1;         // the first so many are cheap to run, and chosen more often
  std::int64_t longest_prompt = 1500;  // of the rare long ones
  std::uint64_t num_requests = 200;    // different ones; schedules share them
};

Schedule make_schedule(std::uint64_t seed, std::uint64_t index, const Limits& limits);

std::string to_text(const RequestSpec& request);
std::string to_text(const Schedule& schedule);
Result<Schedule> schedule_from_text(std::string_view text);

// The job of a request as the engine takes it.
std::shared_ptr<engine::PreparedJob> make_job(const RequestSpec& request, std::int64_t vocab_size);

}  // namespace flotilla::schedules
