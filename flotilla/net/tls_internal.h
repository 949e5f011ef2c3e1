// The definition of TlsContext, for the .cc files of this folder that talk to OpenSSL.
#pragma once

#include <boost/asio/ssl/context.hpp>

#include "flotilla/net/tls_context.h"

namespace flotilla::net {

struct TlsContext {
  explicit TlsContext(boost::asio::ssl::context::method method) : context(method) {}
  boost::asio::ssl::context context;
};

// Hex SHA-256 of the certificate's DER public key; empty on failure.
std::string public_key_pin(X509* certificate);

}  // namespace flotilla::net
