// What the HTTP surface asks of whoever runs models: `flotilla serve` with engines in the process, the coordinator with
// nodes of the fleet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/error.h"
#include "flotilla/base/result.h"

namespace flotilla::serving {

struct ModelEntry {
  std::string id;
  std::int64_t created = 0;
  std::string owned_by = "flotilla";
  std::int64_t context_length = 0;
};

// One piece of a running choice, already free of family syntax. Mirrors the Tokens frame of the link.
struct ChatDelta {
  enum class Channel { kContent, kReasoning, kToolCall };
  Channel channel = Channel::kContent;
  std::string text;
  int call_index = -1;
  std::string call_id;    // with the first piece of a call
  std::string call_name;  // with the first piece of a call
};

struct ChatLogprob {
  std::int32_t id = 0;
  double logprob = 0;
  std::string bytes;
  std::vector<ChatLogprob> top = {};
};

struct ChatUsage {
  std::int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, reasoning_tokens = 0;
};

struct ChatFinish {
  enum class Reason { kStop, kLength, kToolCalls, kCancelled, kError };
  Reason reason = Reason::kStop;
  std::optional<Error> error;
  ChatUsage usage;
};

struct ChatEvent {
  int choice = 0;
  std::vector<std::int32_t> ids;
  std::vector<ChatDelta> deltas;
  std::vector<ChatLogprob> logprobs;
  std::optional<ChatFinish> finish;  // of this choice; exactly one per choice, last
};

// Who asks.
struct Caller {
  std::string request_id;  // also in logs and the x-request-id header
  std::string tenant;      // isolates caches; "local" for flotilla serve without keys
  std::uint64_t account_id = 0;
  std::uint64_t key_id = 0;
};

// A running request. Destroying or cancelling it stops the work; no event follows cancel().
class ChatStream {
 public:
  virtual ~ChatStream() = default;
  virtual void cancel() = 0;
  // After an event callback returned false: the reader has room again.
  virtual void resume() = 0;
};

class ChatBackend {
 public:
  virtual ~ChatBackend() = default;
  virtual std::vector<ModelEntry> models() const = 0;
  // Starts all choices. Must not block. `on_event` runs on any one thread at a time, never inside this call; an error
  // before the first content arrives as a finish with kError and is turned into an HTTP status. Returning false asks for
  // a pause.
  virtual std::unique_ptr<ChatStream> start(api::ChatRequest request, const Caller& caller,
                                            std::function<bool(ChatEvent)> on_event) = 0;
  // nullopt: no keys are configured, everybody is the local user. Otherwise the caller for a key, or an error. Must not
  // block on a database: called on the I/O thread.
  virtual Result<Caller> authenticate(std::optional<std::string_view> key) const = 0;
  virtual bool ready(std::string* why_not) const = 0;  // for /readyz
};

}  // namespace flotilla::serving
