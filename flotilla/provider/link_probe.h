// Tries the link to a coordinator as far as the handshake: for `flotilla doctor`. A node that is
// registered under the same name is not disturbed.
#pragma once

#include <chrono>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/net/io_runtime.h"
#include "flotilla/net/ws_client.h"
#include "flotilla/protocol/handshake.h"

namespace flotilla::provider {

struct LinkProbe {
  std::string peer;                        // address that answered
  std::chrono::milliseconds connected{0};  // name, TCP, TLS and upgrade
  std::chrono::milliseconds answered{0};   // from hello to the coordinator's signed offer
};

struct LinkProbeOptions {
  net::WsClientOptions websocket;
  std::chrono::milliseconds timeout{10'000};  // for the offer, once connected
  // A coordinator that does not want this node's proof says so within this time; it is silent
  // otherwise.
  std::chrono::milliseconds grace{1'000};
};

// Blocks; not on an I/O thread. Errors are those of the connection, or the named fault of the
// handshake (a wrong key, an uninvited node, ...).
Result<LinkProbe> probe_link(net::IoRuntime& io, const LinkProbeOptions& options,
                             const protocol::NodeCredentials& credentials);

}  // namespace flotilla::provider
