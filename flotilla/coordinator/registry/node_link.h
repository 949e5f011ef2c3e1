// How the dispatcher speaks to one node. Implemented by link::NodeSession over a WebSocket, and by
// tests in memory.
#pragma once

#include <cstdint>
#include <memory>

#include "flotilla/base/error.h"
#include "flotilla/base/ids.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::coordinator {

// Called on the core strand; must not block or call back. Messages arrive in the order of the
// calls.
class NodeLink {
 public:
  virtual ~NodeLink() = default;
  virtual void send(protocol::CoordinatorMessage message, const JobId& job,
                    std::uint32_t attempt) = 0;
  // `prepare` is shared by all choices and attempts of a request; `choice` replaces its own.
  virtual void send_prepare(std::shared_ptr<const protocol::Prepare> prepare, std::uint32_t choice,
                            const JobId& job, std::uint32_t attempt) = 0;
  // Tells the node why and closes.
  // Bytes that wait to be sent. Any thread.
  virtual std::size_t queued_bytes() const = 0;
  virtual void close(Error why) = 0;
};

}  // namespace flotilla::coordinator
