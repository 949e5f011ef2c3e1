// From a chat job to streamed text. Implemented by ModelEngine (tokenizer, template, parser and the
// batching Engine) and by ScriptedEngine (no model). Everything above the engine uses only this
// interface.
#pragma once

#include <boost/json/value.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/error.h"
#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/chat/output_parser.h"
#include "flotilla/grammar/constraint.h"
#include "flotilla/sampling/sampling_params.h"
#include "flotilla/state/prefix_cache.h"
#include "flotilla/state/state_cost.h"

namespace flotilla::grammar {
struct ConstraintPlan;
}

namespace flotilla::engine {

// One choice of one chat request, everything fixed: two engines of the same weights and numerics
// give the same tokens.
struct ChatJob {
  boost::json::value messages;  // array in OpenAI's form; arguments of tool calls are objects
  boost::json::value tools;     // array or null
  boost::json::object template_variables;  // enable_thinking and chat_template_kwargs
  // Used instead of messages when not empty: a text in which control tokens count, or ids as they
  // are.
  std::string raw_prompt;
  std::vector<TokenId> prompt_ids;
  // A text completion: the prompt is one of the two above, however empty, and all output is
  // content.
  bool is_completion = false;
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends with the text of the last message
  std::int64_t render_time = 0;         // unix seconds
  sampling::SamplingParams sampling;
  std::int64_t max_tokens = 0;  // 0: up to the context's end
  std::int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;  // matched in content
  std::vector<TokenId> stop_token_ids;
  bool include_stop_string = false;
  int top_logprobs = -1;  // -1: no logprobs; 0: chosen token only; up to 20
  bool wants_token_ids = false;
  grammar::Constraint constraint;  // of the answer, from where the thinking ends
  bool count_only = false;         // for prepare() alone: whoever runs jobs does not submit it
  std::string tenant;              // isolates caches
  // The request is given up when its first token has not come so long after submission; 0: the
  // engine's own limit.
  std::chrono::milliseconds first_token_within{0};
  // Resume: tokens that an earlier attempt generated. Fed through sampler counts, detokenizer,
  // parser and stop matcher as generated tokens; their events are emitted again from index 0, the
  // caller suppresses what it has.
  std::vector<TokenId> resume_ids;
};

enum class FinishReason { kStop, kLength, kCancelled, kError };
std::string_view to_string(FinishReason reason);

struct TokenLogprob {
  TokenId id = 0;
  double logprob =
      0;  // natural log, of the distribution before temperature and truncation; floored at -9999
  std::string bytes;                   // of the token
  std::vector<TokenLogprob> top = {};  // most likely first, empty inside
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;  // including reasoning, calls and the stop token
  std::int64_t cached_tokens = 0;
  std::int64_t reasoning_tokens = 0;
};

struct Finish {
  FinishReason reason = FinishReason::kStop;
  std::optional<Error> error = {};  // with kError
  std::string matched_stop = {};    // the stop string that ended it, if one did
  Usage usage = {};
};

// Events of one request arrive in order on the engine's thread, ending with exactly one that has
// `finish`.
struct TokenEvent {
  RequestId request;
  std::uint32_t first_index = 0;  // generation index of ids[0]
  std::vector<TokenId> ids;       // may be empty when only text was released
  std::vector<chat::OutputDelta> deltas;
  std::vector<TokenLogprob> logprobs;  // one per id when asked for; none for replayed resume_ids
  std::optional<Finish> finish;
  std::int64_t cached_tokens = 0;  // of the prompt, as known by then
};

// Called on the engine's thread; must not block or call back into the engine. Returning false
// pauses the sequence (the reader is full) until resume_output(); events already produced are never
// lost.
using EventSink = std::function<bool(TokenEvent)>;

// A rendered and tokenised job, ready to start. Whoever wants to run it otherwise (resumed, say)
// submits a copy whose `job` differs in what does not concern the prompt.
struct PreparedJob {
  ChatJob job;
  std::vector<TokenId> prompt_ids;
  std::string prompt_text;  // never logged
  std::string prompt_tail;  // what follows the last text of a user or tool: where a parser starts
  // What came of job.constraint; null without one.
  std::shared_ptr<const grammar::ConstraintPlan> constraint;
  std::string prompt_digest;              // hex SHA-256 of the ids as little-endian int32
  std::shared_ptr<const void> kept = {};  // what the engine that prepared it has for it
};

struct EngineStats {
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;
  std::uint64_t kv_bytes_used =
      0;  // by sequences; what only the prefix cache holds is as good as free
  std::uint64_t kv_bytes_total = 0;
  std::uint64_t prompt_tokens_total = 0;
  std::uint64_t completion_tokens_total = 0;
  std::uint64_t num_preemptions = 0;
  // Steps cannot be interrupted: one that takes far longer than any before will not end.
  std::chrono::milliseconds current_step{0};  // how long it runs already; 0: none runs
  std::chrono::milliseconds longest_step{0};  // of those that have ended
  state::PrefixCacheStats prefix_cache = {};
};

// What the checkpoint recommends (generation_config.json); callers fill absent request parameters
// with it.
struct SamplingDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
};

struct EngineInfo {
  std::string model;         // the name clients use
  std::string family;        // "gemma4", "scripted"
  std::string model_digest;  // hex; of the script for a scripted engine
  std::string numerics_id;
  std::int64_t context_length =
      0;  // what a request may use here: the model's, or less when memory is short
  std::int64_t max_concurrent = 0;
  std::int64_t vocab_size = 0;       // 0: no limit known
  std::uint64_t resident_bytes = 0;  // weights and workspace
  state::StateCost state_cost = {};  // of a sequence, by its length
  SamplingDefaults sampling_defaults = {};
  std::string template_source =
      {};  // "chat_template.jinja", "tokenizer_config.json", "chatml", "plain", ...
  std::string template_problem =
      {};  // what the test rendering at load complained about; empty when it went well
};

// Thread-safe.
class TextEngine {
 public:
  virtual ~TextEngine() = default;
  virtual const EngineInfo& info() const = 0;
  // Renders and tokenises on the caller's thread. kContextLength carries both numbers;
  // kInvalidArgument a template's own sentence.
  virtual Result<std::shared_ptr<const PreparedJob>> prepare(ChatJob job) const = 0;
  // Queues the job; kResourceExhausted when the queue is full, kUnavailable when the engine is
  // stopping or unhealthy.
  virtual Result<RequestId> submit(std::shared_ptr<const PreparedJob> job, EventSink sink) = 0;
  // Idempotent; the finish event (kCancelled) still arrives unless the request had finished.
  virtual void cancel(RequestId request) = 0;
  virtual void resume_output(RequestId request) = 0;
  virtual EngineStats stats() const = 0;
  virtual bool healthy() const = 0;
  // The text of generated ids with control tokens as their literals: what `--raw` prints.
  virtual std::string decode(std::span<const TokenId> ids) const {
    static_cast<void>(ids);
    return {};
  }
};

}  // namespace flotilla::engine
