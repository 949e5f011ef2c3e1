// Every message between a node (provider) and the coordinator, declared once. A message is a struct
// with
//   kType      its name in documents, logs and golden files,
//   kKind      its number in the frame header; never reused,
//   fields()   a visitor over (name, member[, limit]): encoding, decoding, tests and limits all
//   follow from it,
// named in one of the variants at the end. Fields are only added, with defaults; unknown fields are
// ignored by receivers. The limit is in bytes for text and in entries for lists. Meaning and order:
// docs/protocol.md.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "flotilla/base/error.h"
#include "flotilla/base/ids.h"
#include "flotilla/protocol/identity.h"
#include "flotilla/protocol/tokens.h"

namespace flotilla::protocol {

inline constexpr std::uint8_t kProtocolVersion = 1;
inline constexpr std::uint8_t kOldestProtocolVersion = 1;

// Limits shared by several messages.
inline constexpr std::size_t kMaxName = 128;
inline constexpr std::size_t kMaxSentence = 2048;
inline constexpr std::size_t kMaxModels = 256;
inline constexpr std::size_t kMaxBigBody = 64u << 20;  // a prompt with pictures

struct WireError {
  ErrorCode code = ErrorCode::kInternal;
  std::string message = {};
  std::string param = {};
  bool operator==(const WireError&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("code", m.code);
    v("message", m.message, kMaxSentence);
    v("param", m.param, kMaxName);
  }
};
// Shortens and repairs the message so that it always fits the wire.
WireError to_wire(const Error& error);
Error from_wire(const WireError& error);

// ---- Handshake. Not sealed; see handshake.h. ----

// Node to coordinator, the only text frame of a link.
struct Hello {
  static constexpr std::string_view kType = "hello";
  static constexpr std::uint8_t kKind = 1;
  std::uint32_t min_version = kOldestProtocolVersion;
  std::uint32_t max_version = kProtocolVersion;
  std::string node = {};      // the invited name
  std::string software = {};  // "flotilla 0.1.0"
  PublicKey public_key = {};
  EphemeralKey ephemeral_key = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("min_version", m.min_version);
    v("max_version", m.max_version);
    v("node", m.node, kMaxName);
    v("software", m.software, kMaxName);
    v("public_key", m.public_key);
    v("ephemeral_key", m.ephemeral_key);
  }
};

// Coordinator to node: its identity and share, signed.
struct Offer {
  static constexpr std::string_view kType = "offer";
  static constexpr std::uint8_t kKind = 2;
  std::uint32_t version = kProtocolVersion;  // chosen
  PublicKey public_key = {};
  EphemeralKey ephemeral_key = {};
  bool needs_invite = false;  // the name is not bound to a key yet
  Signature signature{};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("version", m.version);
    v("public_key", m.public_key);
    v("ephemeral_key", m.ephemeral_key);
    v("needs_invite", m.needs_invite);
    v("signature", m.signature);
  }
};

// Node to coordinator: the transcript signed by its identity and, at the first join, by the
// invite's key.
struct Proof {
  static constexpr std::string_view kType = "proof";
  static constexpr std::uint8_t kKind = 3;
  Signature signature{};
  std::optional<Signature> invite_signature = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("signature", m.signature);
    v("invite_signature", m.invite_signature);
  }
};

// Coordinator to node, instead of Offer or Registered: why not. Plain during the handshake, sealed
// after it.
struct Reject {
  static constexpr std::string_view kType = "reject";
  static constexpr std::uint8_t kKind = 4;
  WireError error = {};  // param: name of the LinkFault, if it is one
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("error", m.error);
  }
};

// ---- What a node is. ----

// Bytes of state that a sequence of a given length needs: fixed + sum over classes of min(length,
// max_tokens) * bytes.
struct StateCostClass {
  std::uint64_t bytes_per_token = 0;
  std::uint64_t max_tokens = 0;  // 0: no cap
  bool operator==(const StateCostClass&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("bytes_per_token", m.bytes_per_token);
    v("max_tokens", m.max_tokens);
  }
};

struct ModelOffer {
  std::string id = {};  // the name clients use
  std::string family = {};
  std::string model_digest = {};
  std::string numerics_id = {};
  std::int64_t created = 0;  // unix seconds
  std::int64_t context_length = 0;
  std::uint32_t max_concurrent = 1;
  std::uint64_t resident_bytes = 0;
  std::uint64_t state_fixed_bytes = 0;
  std::vector<StateCostClass> state_classes = {};
  bool loaded = true;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, kMaxName);
    v("family", m.family, kMaxName);
    v("model_digest", m.model_digest, kMaxName);
    v("numerics_id", m.numerics_id, kMaxName);
    v("created", m.created);
    v("context_length", m.context_length);
    v("max_concurrent", m.max_concurrent);
    v("resident_bytes", m.resident_bytes);
    v("state_fixed_bytes", m.state_fixed_bytes);
    v("state_classes", m.state_classes, 16);
    v("loaded", m.loaded);
  }
};

struct HardwareInfo {
  std::string cpu = {};
  std::string accelerator = {};
  std::uint32_t num_threads = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_cap_bytes = 0;  // what the node may use
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("cpu", m.cpu, kMaxName);
    v("accelerator", m.accelerator, kMaxName);
    v("num_threads", m.num_threads);
    v("memory_bytes", m.memory_bytes);
    v("memory_cap_bytes", m.memory_cap_bytes);
  }
};

// Node to coordinator: first sealed message; sent again whenever the list of models changes (it
// replaces the last one).
struct Register {
  static constexpr std::string_view kType = "register";
  static constexpr std::uint8_t kKind = 16;
  static constexpr std::size_t kMaxBytes = 1u << 20;
  std::string software = {};
  HardwareInfo hardware = {};
  std::vector<ModelOffer> models = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("software", m.software, kMaxName);
    v("hardware", m.hardware);
    v("models", m.models, kMaxModels);
  }
};

// Coordinator to node: Register was accepted.
struct Registered {
  static constexpr std::string_view kType = "registered";
  static constexpr std::uint8_t kKind = 17;
  std::string provider = {};  // ProviderId
  std::string software = {};
  std::uint32_t heartbeat_interval_ms = 5000;
  std::uint32_t dead_after_ms = 15000;  // without any frame from the other side
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("provider", m.provider, kMaxName);
    v("software", m.software, kMaxName);
    v("heartbeat_interval_ms", m.heartbeat_interval_ms);
    v("dead_after_ms", m.dead_after_ms);
  }
};

struct SlotLoad {
  std::string model = {};
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;
  std::uint64_t kv_bytes_used = 0;
  std::uint64_t kv_bytes_total = 0;
  double decode_tokens_per_s = 0;  // per sequence, moving average; 0: unknown
  double prefill_tokens_per_s = 0;
  bool healthy = true;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("model", m.model, kMaxName);
    v("num_running", m.num_running);
    v("num_waiting", m.num_waiting);
    v("kv_bytes_used", m.kv_bytes_used);
    v("kv_bytes_total", m.kv_bytes_total);
    v("decode_tokens_per_s", m.decode_tokens_per_s);
    v("prefill_tokens_per_s", m.prefill_tokens_per_s);
    v("healthy", m.healthy);
  }
};

// Node to coordinator, every heartbeat_interval_ms and when the load changes much.
struct Heartbeat {
  static constexpr std::string_view kType = "heartbeat";
  static constexpr std::uint8_t kKind = 18;
  static constexpr std::size_t kMaxBytes = 1u << 20;
  std::uint64_t sequence = 0;
  std::uint64_t uptime_ms = 0;
  std::uint64_t free_bytes = 0;  // for loading another model
  bool draining = false;
  std::vector<SlotLoad> slots = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("sequence", m.sequence);
    v("uptime_ms", m.uptime_ms);
    v("free_bytes", m.free_bytes);
    v("draining", m.draining);
    v("slots", m.slots, kMaxModels);
  }
};

// Coordinator to node, at once for each Heartbeat: tells the node that the other side lives.
struct HeartbeatAck {
  static constexpr std::string_view kType = "heartbeat_ack";
  static constexpr std::uint8_t kKind = 19;
  std::uint64_t sequence = 0;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("sequence", m.sequence);
  }
};

// ---- Jobs. The header carries job id and attempt. One job is one choice of one request. ----

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
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("model", m.model, kMaxName);
    v("request", m.request, kMaxName);
    v("tenant", m.tenant, kMaxName);
    v("choice", m.choice);
    v("job", m.job);
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
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("resume_ids", m.resume_ids, 4u << 20);
    v("emitted", m.emitted);
    v("prompt_digest", m.prompt_digest, kMaxName);
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

// ---- Models and life cycle. ----

struct Load {
  static constexpr std::string_view kType = "load";
  static constexpr std::uint8_t kKind = 48;
  std::string model = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("model", m.model, kMaxName);
  }
};

struct Unload {
  static constexpr std::string_view kType = "unload";
  static constexpr std::uint8_t kKind = 49;
  std::string model = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("model", m.model, kMaxName);
  }
};

enum class ModelState : std::uint8_t { kFailed, kLoading, kLoaded, kUnloaded };

// Node to coordinator: answer to Load and Unload, and news about a model. A changed list is also
// sent as Register.
struct ModelStatus {
  static constexpr std::string_view kType = "model_status";
  static constexpr std::uint8_t kKind = 50;
  std::string model = {};
  ModelState state = ModelState::kFailed;
  std::optional<WireError> error = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("model", m.model, kMaxName);
    v("state", m.state);
    v("error", m.error);
  }
};

// From a node: no new jobs, running ones go on, then it leaves. From the coordinator: please do so,
// or: it is about to stop and the node should reconnect later.
struct Drain {
  static constexpr std::string_view kType = "drain";
  static constexpr std::uint8_t kKind = 51;
  std::uint32_t deadline_ms = 0;
  std::string reason = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("deadline_ms", m.deadline_ms);
    v("reason", m.reason, kMaxName);
  }
};

// ---- The list. ----

using HandshakeMessage = std::variant<Hello, Offer, Proof, Reject>;
// What a node sends once the link is sealed.
using ProviderMessage =
    std::variant<Register, Heartbeat, Lease, Refuse, Tokens, Finish, CancelAck, ModelStatus, Drain>;
// What the coordinator sends once the link is sealed.
using CoordinatorMessage = std::variant<Registered, HeartbeatAck, Prepare, Start, Cancel, Flow,
                                        Load, Unload, Drain, Reject>;

}  // namespace flotilla::protocol
