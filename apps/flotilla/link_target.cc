#include "apps/flotilla/link_target.h"

#include <utility>

namespace flotilla::apps {

Result<LinkTarget> link_target(NodeState state, const LinkSettings& settings) {
  LinkTarget target{
      .websocket = {},
      .credentials = {state.token.node, std::move(state.identity), state.token.coordinator_key,
                      state.token.secret, "flotilla " FLOTILLA_VERSION}};
  net::WsClientOptions& ws = target.websocket;
  ws.url = settings.coordinator.empty() ? state.token.url : settings.coordinator;
  if (ws.url.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "the token names no coordinator: give --coordinator wss://HOST:PORT/v1/link"};
  }
  FLOTILLA_TRY(const bool safe, net::is_private_or_encrypted(ws.url));
  if (!safe && !settings.insecure) {
    return Error{ErrorCode::kInvalidArgument,
                 ws.url + " is neither TLS nor this machine: use wss://, or say --insecure"};
  }
  ws.ca_file = settings.ca_file;
  if (settings.ca_file.empty() && ws.url.rfind("wss://", 0) == 0)
    ws.pinned_public_key = state.token.tls_public_key;
  return target;
}

}  // namespace flotilla::apps
