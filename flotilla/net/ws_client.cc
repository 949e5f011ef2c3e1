#include "flotilla/net/ws_client.h"

#include <utility>

#include "flotilla/base/text.h"
#include "flotilla/net/connector.h"
#include "flotilla/net/url.h"
#include "flotilla/net/ws_session_impl.h"

namespace flotilla::net {

Result<std::shared_ptr<WsSession>> connect_websocket(IoRuntime& io, const WsClientOptions& options,
                                                     WsHandlers handlers) {
  FLOTILLA_TRY(WsUrl url, parse_ws_url(options.url));
  ConnectTarget target{.host = url.host, .port = url.port, .tls = nullptr, .key_pin = {}};
  if (!options.pinned_public_key.empty()) {
    if (!url.secure)
      return Error{ErrorCode::kInvalidArgument, "a pinned public key needs a wss:// URL"};
    const auto bytes = from_hex(options.pinned_public_key);
    if (!bytes || bytes->size() != 32) {
      return Error{ErrorCode::kInvalidArgument,
                   "the pinned public key must be 64 hexadecimal digits"};
    }
    target.key_pin = to_hex(*bytes);
  }
  if (url.secure) {
    FLOTILLA_TRY(target.tls, make_client_tls(options.ca_file, target.key_pin.empty()));
  }
  const Strand strand(io);
  auto session =
      std::make_shared<WsSessionImpl>(strand, options.max_message_bytes, url.authority());
  auto connector = std::make_shared<Connector>(
      strand, std::move(target),
      [session, url](Result<std::shared_ptr<std::unique_ptr<ByteStream>>> outcome) {
        if (!outcome.ok()) return session->fail(outcome.error().message);
        session->start_client(std::move(**outcome), url);
      });
  strand.post([session, connector, handlers = std::move(handlers),
               timeout = options.connect_timeout]() mutable {
    session->expect_client(std::move(handlers), timeout, [connector] { connector->cancel(); });
    connector->start();
  });
  return std::shared_ptr<WsSession>(std::move(session));
}

}  // namespace flotilla::net
