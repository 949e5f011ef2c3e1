// OpenSSL contexts for both sides. Internal to net/.
#pragma once

#include <memory>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/net/http.h"

namespace flotilla::net {

// Holds a boost::asio::ssl::context; immutable once made, shared by the connections that use it.
struct TlsContext;

Result<std::shared_ptr<TlsContext>> make_server_tls(const TlsFiles& files);
// `ca_file` empty: the system's store. With `check_certificate` false the peer's certificate is not
// verified here: the caller compares its key with a pin.
Result<std::shared_ptr<TlsContext>> make_client_tls(const std::string& ca_file,
                                                    bool check_certificate);

}  // namespace flotilla::net
