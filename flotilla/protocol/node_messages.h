// What a node is, how it fares, and its models. How messages are declared: messages.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/protocol/wire_types.h"

namespace flotilla::protocol {

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
  std::uint64_t resident_bytes = 0;  // weights and workspace; of one not loaded: what it will be
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
  // A Progress comes at least so often while the node has jobs; 0: it sends none.
  std::uint32_t progress_interval_ms = 0;
  bool answers_recall = false;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("software", m.software, kMaxName);
    v("hardware", m.hardware);
    v("models", m.models, kMaxModels);
    v("progress_interval_ms", m.progress_interval_ms);
    v("answers_recall", m.answers_recall);
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
  // The last HeartbeatAck that the node got, and how long ago: from both the coordinator has the
  // time of a round trip. 0: none yet.
  std::uint64_t acked_sequence = 0;
  std::uint64_t ack_age_us = 0;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("sequence", m.sequence);
    v("uptime_ms", m.uptime_ms);
    v("free_bytes", m.free_bytes);
    v("draining", m.draining);
    v("slots", m.slots, kMaxModels);
    v("acked_sequence", m.acked_sequence);
    v("ack_age_us", m.ack_age_us);
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

// Node to coordinator, while it has jobs: they go on, though there is no token to send. A long
// prefill shows itself so; a process that was stopped does not.
struct Progress {
  static constexpr std::string_view kType = "progress";
  static constexpr std::uint8_t kKind = 20;
  std::vector<std::string> stuck = {};  // models whose engine has finished no step for too long
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("stuck", m.stuck, kMaxModels);
  }
};

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

}  // namespace flotilla::protocol
