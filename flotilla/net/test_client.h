// A blocking TCP (and TLS) client for tests: says exactly the bytes it is told to say. Test code
// only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace flotilla::net {

// Polls until `condition` holds, at most for `limit`.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = std::chrono::milliseconds(3000)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class TestClient {
 public:
  explicit TestClient(std::uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~TestClient() {
    if (ssl_) SSL_free(ssl_);
    if (context_) SSL_CTX_free(context_);
    if (fd_ >= 0) ::close(fd_);
  }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool connected() const { return connected_; }

  // Certificates are not checked. False when the handshake fails.
  bool start_tls(std::string_view alpn = {}) {
    context_ = SSL_CTX_new(TLS_client_method());
    ssl_ = SSL_new(context_);
    if (!alpn.empty()) {
      std::string list(1, static_cast<char>(alpn.size()));
      list += alpn;
      SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(list.data()),
                          static_cast<unsigned>(list.size()));
    }
    SSL_set_fd(ssl_, fd_);
    return SSL_connect(ssl_) == 1;
  }
  std::string alpn() const {
    const unsigned char* name = nullptr;
    unsigned length = 0;
    SSL_get0_alpn_selected(ssl_, &name, &length);
    return {reinterpret_cast<const char*>(name), length};
  }
  std::string certificate_name() const {
    X509* certificate = SSL_get1_peer_certificate(ssl_);
    char name[128] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                              sizeof name);
    X509_free(certificate);
    return name;
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const long n = ssl_ ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                          : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  // Until `marker` is in the text received so far (which is returned and consumed), the end, or the
  // limit.
  std::string read_until(std::string_view marker,
                         std::chrono::milliseconds limit = std::chrono::milliseconds(3000)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    std::size_t at;
    while ((at = buffer_.find(marker)) == std::string::npos) {
      if (!fill(end)) return std::exchange(buffer_, {});
    }
    std::string out = buffer_.substr(0, at + marker.size());
    buffer_.erase(0, at + marker.size());
    return out;
  }
  std::string read_all(std::chrono::milliseconds limit = std::chrono::milliseconds(3000)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (fill(end)) {
    }
    return std::exchange(buffer_, {});
  }
  std::string read_bytes(std::size_t n,
                         std::chrono::milliseconds limit = std::chrono::milliseconds(3000)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (buffer_.size() < n && fill(end)) {
    }
    std::string out = buffer_.substr(0, n);
    buffer_.erase(0, out.size());
    return out;
  }
  // One answer with Content-Length: head and body.
  std::string read_response() {
    std::string head = read_until("\r\n\r\n");
    const std::size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    return head + read_bytes(static_cast<std::size_t>(std::atol(head.c_str() + at + 16)));
  }

  bool saw_end() const { return end_; }      // FIN or close_notify
  bool saw_reset() const { return reset_; }  // RST
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  void close() { ::close(std::exchange(fd_, -1)); }
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

 private:
  bool fill(std::chrono::steady_clock::time_point end) {
    char chunk[16384];
    if (!ssl_ || SSL_pending(ssl_) == 0) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd entry{fd_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0) return false;
    }
    const long n = ssl_ ? SSL_read(ssl_, chunk, sizeof chunk) : ::recv(fd_, chunk, sizeof chunk, 0);
    if (n == 0) end_ = true;
    if (n < 0) reset_ = true;
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<std::size_t>(n));
    return true;
  }

  int fd_ = -1;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  std::string buffer_;
  bool connected_ = false;
  bool end_ = false;
  bool reset_ = false;
};

}  // namespace flotilla::net
