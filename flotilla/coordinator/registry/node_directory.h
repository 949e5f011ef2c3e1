// Who may join. An interface, because the answer comes from a database and the sessions must not
// wait for it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/protocol/handshake.h"

namespace flotilla::coordinator {

// Thread-safe. Callbacks run on any thread, also within the call.
class NodeDirectory {
 public:
  virtual ~NodeDirectory() = default;
  virtual void find(const std::string& name,
                    std::function<void(Result<std::optional<protocol::KnownNode>>)> done) = 0;
  // The first join: from now on the name belongs to `key`.
  virtual void bind(const protocol::KnownNode& known, const protocol::PublicKey& key,
                    std::function<void(Status)> done) = 0;
};

}  // namespace flotilla::coordinator
