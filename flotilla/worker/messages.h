// What a program and the process that runs a model for it say to each other. Each struct is taken
// apart into all of its members: a new one does not compile until it travels too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/engine/model_engine.h"
#include "flotilla/engine/text_engine.h"
#include "flotilla/worker/wire.h"

namespace flotilla::worker {

// Of a frame; its `tag` is a request, a prepared job, or a question that the answer repeats.
enum class Kind : std::uint8_t {
  // To the worker.
  kLoad,     // LoadOrder
  kPrepare,  // ChatJob; the tag names the prepared job from now on
  kForget,   // of a prepared job
  kSubmit,   // tag: the request's; body: the prepared job's, ChatJob as it is to run
  kCancel,
  kPause,
  kResume,
  kStats,
  kDecode,  // ids
  // From the worker.
  kProgress,  // done, total
  kLoaded,    // LoadAnswer
  kAnswer,    // to kPrepare, kSubmit, kStats, kDecode
  kEvent,     // tag: the request's
  kLost,      // its device; the process ends now
};

struct LoadOrder {
  engine::ModelEngineOptions options;  // without functions and budgets
  std::optional<std::uint64_t> memory, device_memory;
  std::uint64_t fault_at_step = 0;  // for tests: before_step of the worker does it; 0: never
};
struct LoadAnswer {
  std::optional<Error> error;
  engine::EngineInfo info;
  std::uint64_t granted = 0, device_granted = 0;  // of the two budgets, in use
};
struct PrepareAnswer {
  std::optional<Error> error;
  std::vector<TokenId> prompt_ids;
  std::string prompt_text, prompt_tail, prompt_digest;
};
struct StatsAnswer {
  engine::EngineStats stats;
  bool healthy = false;
};

template <class V>
void fields(V& v, LoadAnswer& m) {
  v(m.error, m.info, m.granted, m.device_granted);
}
template <class V>
void fields(V& v, PrepareAnswer& m) {
  v(m.error, m.prompt_ids, m.prompt_text, m.prompt_tail, m.prompt_digest);
}
template <class V>
void fields(V& v, StatsAnswer& m) {
  v(m.stats, m.healthy);
}
template <class V>
void fields(V& v, LoadOrder& m) {
  auto& [folder, name, num_threads, pin_threads, target, pack_weights, cuda_device, device_memory,
         memory, kv_bytes, context_length, scheduler, prefix_cache, leases, max_waiting, progress,
         first_id, on_device_lost, before_step] = m.options;
  v(folder, name, num_threads, pin_threads, target, pack_weights, cuda_device, kv_bytes,
    context_length, scheduler, prefix_cache, leases, max_waiting, first_id, m.memory,
    m.device_memory, m.fault_at_step);
  static_cast<void>(device_memory), static_cast<void>(memory), static_cast<void>(progress),
      static_cast<void>(on_device_lost), static_cast<void>(before_step);
}

}  // namespace flotilla::worker

namespace flotilla {

template <class V>
void fields(V& v, Error& m) {
  auto& [code, message, param, retry_after_s] = m;
  v(code, message, param, retry_after_s);
}

namespace sampling {
template <class V>
void fields(V& v, SamplingParams& m) {
  auto& [temperature, top_p, top_k, min_p, presence, frequency, repetition, bias, seed, choice] = m;
  v(temperature, top_p, top_k, min_p, presence, frequency, repetition, bias, seed, choice);
}
}  // namespace sampling

namespace grammar {
template <class V>
void fields(V& v, Constraint& m) {
  auto& [kind, schema, text, choices, param, calls, strict_tools, function, parallel] = m;
  v(kind, schema, text, choices, param, calls, strict_tools, function, parallel);
}
}  // namespace grammar

namespace chat {
template <class V>
void fields(V& v, OutputDelta& m) {
  auto& [channel, text, call_index, call_name] = m;
  v(channel, text, call_index, call_name);
}
}  // namespace chat

namespace state {
template <class V>
void fields(V& v, StateCostClass& m) {
  auto& [bytes_per_token, max_tokens] = m;
  v(bytes_per_token, max_tokens);
}
template <class V>
void fields(V& v, StateCost& m) {
  auto& [fixed_bytes, classes] = m;
  v(fixed_bytes, classes);
}
template <class V>
void fields(V& v, PrefixCacheOptions& m) {
  auto& [enabled, max_bytes, max_checkpoint_bytes, checkpoint_interval] = m;
  v(enabled, max_bytes, max_checkpoint_bytes, checkpoint_interval);
}
template <class V>
void fields(V& v, PrefixCacheStats& m) {
  auto& [hits, misses, hit_tokens, evictions, bytes, checkpoint_bytes, blocks, checkpoints] = m;
  v(hits, misses, hit_tokens, evictions, bytes, checkpoint_bytes, blocks, checkpoints);
}
}  // namespace state

namespace engine {
template <class V>
void fields(V& v, SchedulerOptions& m) {
  auto& [max_batch_tokens, prefill_chunk, max_sequences, room_ahead, max_bypass, preemption,
         eviction] = m;
  v(max_batch_tokens, prefill_chunk, max_sequences, room_ahead, max_bypass, preemption, eviction);
}
template <class V>
void fields(V& v, LeaseOptions& m) {
  auto& [admission, prefill, decode, slow_reader, first_token] = m;
  v(admission, prefill, decode, slow_reader, first_token);
}
template <class V>
void fields(V& v, SamplingDefaults& m) {
  auto& [temperature, top_p, top_k, min_p, repetition] = m;
  v(temperature, top_p, top_k, min_p, repetition);
}
template <class V>
void fields(V& v, EngineInfo& m) {
  auto& [model, family, model_digest, numerics_id, context_length, max_concurrent, vocab_size,
         resident_bytes, state_cost, sampling_defaults, template_source, template_problem] = m;
  v(model, family, model_digest, numerics_id, context_length, max_concurrent, vocab_size,
    resident_bytes, state_cost, sampling_defaults, template_source, template_problem);
}
template <class V>
void fields(V& v, EngineStats& m) {
  auto& [num_running, num_waiting, kv_used, kv_total, prompt_tokens, completion_tokens, preemptions,
         current_step, longest_step, prefix_cache] = m;
  v(num_running, num_waiting, kv_used, kv_total, prompt_tokens, completion_tokens, preemptions,
    current_step, longest_step, prefix_cache);
}
template <class V>
void fields(V& v, Usage& m) {
  auto& [prompt, completion, cached, reasoning] = m;
  v(prompt, completion, cached, reasoning);
}
template <class V>
void fields(V& v, Finish& m) {
  auto& [reason, error, matched_stop, usage] = m;
  v(reason, error, matched_stop, usage);
}
template <class V>
void fields(V& v, TokenLogprob& m) {
  auto& [id, logprob, bytes, top] = m;
  v(id, logprob, bytes, top);
}
template <class V>
void fields(V& v, TokenEvent& m) {
  auto& [request, first_index, ids, deltas, logprobs, finish, cached] = m;
  v(request, first_index, ids, deltas, logprobs, finish, cached);
}
template <class V>
void fields(V& v, ChatJob& m) {
  auto& [messages, tools, variables, raw_prompt, prompt_ids, is_completion, add_prompt,
         continue_final, render_time, sampling, max_tokens, min_tokens, ignore_eos, stop,
         stop_token_ids, include_stop, top_logprobs, wants_ids, constraint, count_only, tenant,
         first_token_within, resume_ids] = m;
  v(messages, tools, variables, raw_prompt, prompt_ids, is_completion, add_prompt, continue_final,
    render_time, sampling, max_tokens, min_tokens, ignore_eos, stop, stop_token_ids, include_stop,
    top_logprobs, wants_ids, constraint, count_only, tenant, first_token_within, resume_ids);
}
}  // namespace engine

}  // namespace flotilla
