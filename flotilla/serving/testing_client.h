// A blocking HTTP client of a few lines, for tests over loopback.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace flotilla::serving {

inline std::string http_post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

class TestClient {
 public:
  explicit TestClient(std::uint16_t port, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("connect");
    }
  }
  ~TestClient() { ::close(socket_); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void send(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t n = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (n <= 0) throw std::runtime_error("send");
      at += static_cast<std::size_t>(n);
    }
  }
  // False at the end of the connection.
  bool read_some() {
    char buffer[16384];
    const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    received_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }
  // Everything up to the end of the connection, without head and chunk marks.
  std::string read_body() {
    while (read_some()) {
    }
    const std::size_t head_end = received_.find("\r\n\r\n");
    if (head_end == std::string::npos) return {};
    const bool chunked = received_.substr(0, head_end).find("chunked") != std::string::npos;
    std::string rest = received_.substr(head_end + 4);
    if (!chunked) return rest;
    std::string body;
    for (std::size_t at = 0;;) {
      const std::size_t line_end = rest.find("\r\n", at);
      if (line_end == std::string::npos) break;
      const std::size_t size = std::strtoul(rest.c_str() + at, nullptr, 16);
      if (size == 0) break;
      body += rest.substr(line_end + 2, size);
      at = line_end + 2 + size + 2;
    }
    return body;
  }

 private:
  int socket_;
  std::string received_;
};

}  // namespace flotilla::serving
