// Which coordinator this node dials, and as whom.
#pragma once

#include <string>

#include "apps/flotilla/node_state.h"
#include "flotilla/net/ws_client.h"
#include "flotilla/protocol/handshake.h"

namespace flotilla::apps {

struct LinkSettings {
  std::string coordinator;  // wss://HOST:PORT/v1/link; empty: what the token says
  std::string ca_file;      // empty: the token's pin, else the system's authorities
  bool insecure = false;    // allows ws:// to another machine
};

struct LinkTarget {
  net::WsClientOptions websocket;
  protocol::NodeCredentials credentials;
};

Result<LinkTarget> link_target(NodeState state, const LinkSettings& settings);

}  // namespace flotilla::apps
