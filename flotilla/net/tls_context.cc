#include "flotilla/net/tls_context.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <array>
#include <boost/system/system_error.hpp>
#include <cstdio>
#include <vector>

#include "flotilla/base/text.h"
#include "flotilla/net/tls_internal.inc"
#include "flotilla/net/ws_client.h"

namespace flotilla::net {

namespace ssl = boost::asio::ssl;

namespace {

constexpr std::array<unsigned char, 9> kAlpn = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

int select_alpn(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in,
                unsigned int in_length, void*) {
  unsigned char* chosen = nullptr;
  const int outcome = SSL_select_next_proto(&chosen, out_length, kAlpn.data(),
                                            static_cast<unsigned>(kAlpn.size()), in, in_length);
  // A client that offers other protocols only may still speak HTTP/1.1: go on without an answer.
  if (outcome != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

void set_common(ssl::context& context) {
  context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                      ssl::context::no_sslv3);
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  // Idle connections give their record buffers back.
  SSL_CTX_set_mode(context.native_handle(), SSL_MODE_RELEASE_BUFFERS);
}

}  // namespace

Result<std::shared_ptr<TlsContext>> make_server_tls(const TlsFiles& files) {
  auto tls = std::make_shared<TlsContext>(ssl::context::tls_server);
  set_common(tls->context);
  boost::system::error_code error;
  tls->context.use_certificate_chain_file(files.certificate_file, error);
  if (error) {
    return Error{ErrorCode::kInvalidArgument,
                 "TLS certificate '" + files.certificate_file + "': " + error.message()};
  }
  tls->context.use_private_key_file(files.key_file, ssl::context::pem, error);
  if (error) {
    return Error{ErrorCode::kInvalidArgument,
                 "TLS key '" + files.key_file + "': " + error.message()};
  }
  if (SSL_CTX_check_private_key(tls->context.native_handle()) != 1) {
    return Error{ErrorCode::kInvalidArgument, "TLS key '" + files.key_file +
                                                  "' does not belong to certificate '" +
                                                  files.certificate_file + "'"};
  }
  SSL_CTX_set_alpn_select_cb(tls->context.native_handle(), select_alpn, nullptr);
  return tls;
}

Result<std::shared_ptr<TlsContext>> make_client_tls(const std::string& ca_file,
                                                    bool check_certificate) {
  auto tls = std::make_shared<TlsContext>(ssl::context::tls_client);
  set_common(tls->context);
  SSL_CTX_set_alpn_protos(tls->context.native_handle(), kAlpn.data(),
                          static_cast<unsigned>(kAlpn.size()));
  if (!check_certificate) {
    tls->context.set_verify_mode(ssl::verify_none);
    return tls;
  }
  tls->context.set_verify_mode(ssl::verify_peer);
  boost::system::error_code error;
  if (ca_file.empty()) {
    tls->context.set_default_verify_paths(error);
  } else {
    tls->context.load_verify_file(ca_file, error);
  }
  if (error) {
    return Error{ErrorCode::kInvalidArgument, "TLS authorities '" +
                                                  (ca_file.empty() ? "of the system" : ca_file) +
                                                  "': " + error.message()};
  }
  return tls;
}

std::string public_key_pin(X509* certificate) {
  X509_PUBKEY* key = X509_get_X509_PUBKEY(certificate);
  const int length = key ? i2d_X509_PUBKEY(key, nullptr) : 0;
  if (length <= 0) return {};
  std::vector<unsigned char> der(static_cast<std::size_t>(length));
  unsigned char* out = der.data();
  i2d_X509_PUBKEY(key, &out);
  std::array<std::uint8_t, 32> digest{};
  unsigned int digest_length = 0;
  if (EVP_Digest(der.data(), der.size(), digest.data(), &digest_length, EVP_sha256(), nullptr) !=
      1) {
    return {};
  }
  return to_hex(digest);
}

Result<std::string> public_key_pin(const std::string& certificate_file) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(certificate_file.c_str(), "rb"),
                                                       &std::fclose);
  if (!file)
    return Error{ErrorCode::kNotFound, "cannot open certificate '" + certificate_file + "'"};
  std::unique_ptr<X509, void (*)(X509*)> certificate(
      PEM_read_X509(file.get(), nullptr, nullptr, nullptr), &X509_free);
  std::string pin = certificate ? public_key_pin(certificate.get()) : std::string();
  if (pin.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "'" + certificate_file + "' holds no PEM certificate"};
  }
  return pin;
}

}  // namespace flotilla::net
