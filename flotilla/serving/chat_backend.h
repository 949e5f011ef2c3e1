// What the HTTP surface asks of whoever runs models: `flotilla serve` with engines in the process,
// the coordinator with nodes of the fleet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/api/chat_request.h"
#include "flotilla/api/chat_response.h"
#include "flotilla/api/model_list.h"
#include "flotilla/base/error.h"
#include "flotilla/base/result.h"

namespace flotilla::serving {

using ModelEntry = api::ModelInfo;

// One piece of a running choice, already free of family syntax. Mirrors the Tokens frame of the
// link.
struct ChatDelta {
  enum class Channel { kContent, kReasoning, kToolCall };
  Channel channel = Channel::kContent;
  std::string text;
  int call_index = -1;
  std::string call_id;  // with the first piece of a call; the surface makes one up when it is empty
  std::string call_name;  // with the first piece of a call
};

using ChatLogprob = api::TokenLogprob;
using ChatUsage = api::Usage;

struct ChatFinish {
  enum class Reason { kStop, kLength, kToolCalls, kCancelled, kError };
  Reason reason = Reason::kStop;
  std::optional<Error> error;
  ChatUsage usage;
  std::string matched_stop = {};  // the stop string that ended it, if one did
};

struct ChatEvent {
  int choice = 0;
  std::vector<std::int32_t> ids;
  std::vector<ChatDelta> deltas;
  std::vector<ChatLogprob> logprobs;
  std::optional<ChatFinish> finish;  // of this choice; exactly one per choice, last
  std::int64_t prompt_tokens = 0;    // 0 where it is not known before the finish
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
  // Idempotent; also when everything has finished.
  virtual void cancel() = 0;
  // The client was handed the whole answer: every choice has finished, and it does not hear of an
  // error. What was not streamed counts from here on.
  virtual void taken() {}
  // After an event callback returned false: the reader has room again. May come from another thread
  // while that callback is still returning; it must not be lost then.
  virtual void resume() = 0;
};

class ChatBackend {
 public:
  virtual ~ChatBackend() = default;
  virtual std::vector<ModelEntry> models() const = 0;
  // Starts all choices; never returns null. Must not block. `on_event` runs on any one thread at a
  // time, never inside this call; an error before the first content (an unknown model too:
  // kNotFound with param "model") arrives as a finish with kError and is turned into an HTTP
  // status. Returning false asks for a pause.
  virtual std::unique_ptr<ChatStream> start(api::ChatRequest request, const Caller& caller,
                                            std::function<bool(ChatEvent)> on_event) = 0;
  // The caller for a key; for nullopt (no key was sent) the local user where no keys are
  // configured. Without configured keys every key is the local user too. Otherwise
  // kUnauthenticated. Must not block on a database: called on the I/O thread. `request_id` is
  // filled in by the surface.
  virtual Result<Caller> authenticate(std::optional<std::string_view> key) const = 0;
  virtual bool ready(std::string* why_not) const = 0;  // for /readyz
};

}  // namespace flotilla::serving
