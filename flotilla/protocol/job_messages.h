// Jobs. The header carries job id and attempt; one job is one choice of one request. How messages
// are declared: messages.h.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/protocol/tokens.h"
#include "flotilla/protocol/wire_types.h"

namespace flotilla::protocol {

// Coordinator to node.
struct Prepare {
  static constexpr std::string_view kType = "prepare";
  static constexpr std::uint8_t kKind = 32;
  static constexpr std::size_t kMaxBytes = kMaxBigBody;
  std::string model = {};
  std::string request = {};  // request id for logs
  std::string tenant = {};   // isolates caches
  std::uint32_t choice = 0;
  boost::json::value job = {};  // api::to_job_json
  // From start to the first token; a job that has none by then is given up. 0: the node decides.
  std::uint32_t first_token_within_ms = 0;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("model", m.model, kMaxName);
    v("request", m.request, kMaxName);
    v("tenant", m.tenant, kMaxName);
    v("choice", m.choice);
    v("job", m.job);
    v("first_token_within_ms", m.first_token_within_ms);
  }
};

// Node to coordinator: the job can be started here.
struct Lease {
  static constexpr std::string_view kType = "lease";
  static constexpr std::uint8_t kKind = 33;
  std::uint64_t prompt_tokens = 0;
  std::string prompt_digest = {};  // hex SHA-256 of the prompt ids as little-endian int32
  std::uint64_t granted_tokens = 0;
  std::uint64_t granted_bytes = 0;
  std::uint32_t queue_ms = 0;      // expected wait before it runs
  std::uint32_t valid_ms = 10000;  // without Start the lease ends
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("prompt_tokens", m.prompt_tokens);
    v("prompt_digest", m.prompt_digest, kMaxName);
    v("granted_tokens", m.granted_tokens);
    v("granted_bytes", m.granted_bytes);
    v("queue_ms", m.queue_ms);
    v("valid_ms", m.valid_ms);
  }
};

enum class RefuseReason : std::uint8_t {
  kOther,
  kBusy,       // no slot or queue full: another node may take it, or this one later
  kMemory,     // no room for its state now
  kNotLoaded,  // the model is not here (any more)
  kDraining,
  kUnhealthy,       // the engine is being rebuilt
  kInvalidRequest,  // would be refused by every node: goes to the client
  kPromptMismatch,  // a resume whose prompt digest differs
};

// Node to coordinator: the job cannot be started here.
struct Refuse {
  static constexpr std::string_view kType = "refuse";
  static constexpr std::uint8_t kKind = 34;
  RefuseReason reason = RefuseReason::kOther;
  WireError error = {};
  std::uint32_t retry_after_ms = 0;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("reason", m.reason);
    v("error", m.error);
    v("retry_after_ms", m.retry_after_ms);
  }
};

// Text already delivered to the client, in bytes per channel.
struct EmittedBytes {
  std::uint64_t content = 0;
  std::uint64_t reasoning = 0;
  std::vector<std::uint64_t> tool_calls = {};  // arguments, by call index
  bool operator==(const EmittedBytes&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("content", m.content);
    v("reasoning", m.reasoning);
    v("tool_calls", m.tool_calls, 1024);
  }
};

// Coordinator to node: the lease is taken. With resume_ids the node feeds them as generated tokens
// and suppresses the output that `emitted` covers.
struct Start {
  static constexpr std::string_view kType = "start";
  static constexpr std::uint8_t kKind = 35;
  static constexpr std::size_t kMaxBytes = kMaxBigBody;
  std::vector<TokenId> resume_ids = {};
  EmittedBytes emitted = {};
  std::string prompt_digest = {};  // with resume_ids: what the first attempt's lease said
  std::uint64_t max_tokens = 0;    // in all, resume_ids included; 0: as the job and the context say
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("resume_ids", m.resume_ids, 4u << 20);
    v("emitted", m.emitted);
    v("prompt_digest", m.prompt_digest, kMaxName);
    v("max_tokens", m.max_tokens);
  }
};

enum class WireFinishReason : std::uint8_t { kError, kStop, kLength, kToolCalls, kCancelled };

struct WireUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t reasoning_tokens = 0;
  bool operator==(const WireUsage&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("prompt_tokens", m.prompt_tokens);
    v("completion_tokens", m.completion_tokens);
    v("cached_tokens", m.cached_tokens);
    v("reasoning_tokens", m.reasoning_tokens);
  }
};

// Node to coordinator: the last frame of an attempt that was started, whatever happened.
struct Finish {
  static constexpr std::string_view kType = "finish";
  static constexpr std::uint8_t kKind = 37;
  WireFinishReason reason = WireFinishReason::kError;
  std::optional<WireError> error = {};  // with kError
  std::string matched_stop = {};
  std::uint64_t num_ids = 0;  // ids sent in Tokens frames
  WireUsage usage = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("reason", m.reason);
    v("error", m.error);
    v("matched_stop", m.matched_stop, 8192);
    v("num_ids", m.num_ids);
    v("usage", m.usage);
  }
};

// Coordinator to node: stop; also ends a lease. Idempotent, and remembered when it arrives before
// its job.
struct Cancel {
  static constexpr std::string_view kType = "cancel";
  static constexpr std::uint8_t kKind = 38;
  std::string reason = {};  // "client_gone", "replaced", ...
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("reason", m.reason, kMaxName);
  }
};

// Node to coordinator, for every Cancel: nothing of this attempt runs any more and no frame of it
// follows.
struct CancelAck {
  static constexpr std::string_view kType = "cancel_ack";
  static constexpr std::uint8_t kKind = 39;
  bool was_running = false;
  WireUsage usage = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("was_running", m.was_running);
    v("usage", m.usage);
  }
};

// Coordinator to node: the client reads slowly (or again). The node stops producing for this
// attempt only; a few frames may still be under way.
struct Flow {
  static constexpr std::string_view kType = "flow";
  static constexpr std::uint8_t kKind = 40;
  bool paused = false;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("paused", m.paused);
  }
};

// Coordinator to node, after a restart: what became of these jobs? Only to nodes that say that they
// answer it.
struct Recall {
  static constexpr std::string_view kType = "recall";
  static constexpr std::uint8_t kKind = 56;
  static constexpr std::size_t kMaxJobs = 1'000;
  std::vector<std::string> jobs = {};  // hex
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("jobs", m.jobs, kMaxJobs);
  }
};

// An attempt that was started and has ended.
struct AttemptEnd {
  std::string job = {};  // hex
  std::uint32_t attempt = 0;
  bool finished = false;          // with a Finish that was no error
  std::uint64_t first_token = 0;  // index of the first token it sent: those before came from others
  std::uint64_t end_token = 0;    // one after the last that it sent
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  bool operator==(const AttemptEnd&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("job", m.job, kMaxName);
    v("attempt", m.attempt);
    v("finished", m.finished);
    v("first_token", m.first_token);
    v("end_token", m.end_token);
    v("prompt_tokens", m.prompt_tokens);
    v("cached_tokens", m.cached_tokens);
  }
};

// Node to coordinator: the answer to Recall; jobs that it does not remember are left out.
struct Recalled {
  static constexpr std::string_view kType = "recalled";
  static constexpr std::uint8_t kKind = 57;
  static constexpr std::size_t kMaxBytes = 1u << 20;
  std::vector<AttemptEnd> ends = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("ends", m.ends, 4 * Recall::kMaxJobs);
  }
};

}  // namespace flotilla::protocol
