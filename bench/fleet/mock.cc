#include "bench/fleet/mock.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <unordered_map>

#include "bench/fleet/sockets.h"

namespace flotilla::bench {
namespace {

constexpr std::uint64_t kListener = ~std::uint64_t{0};
constexpr std::size_t kFullOutput = 256u << 10;
constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: "
    "no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kChunkStart =
    R"({"id":"chatcmpl-0123456789abcdef01234567","object":"chat.completion.chunk","created":1764500000,"model":"bench","choices":[{"index":0,"delta":)";

volatile std::sig_atomic_t stopping = 0;

// One event as the coordinator writes it.
std::string event(std::string_view delta, std::string_view finish) {
  std::string out = "data: ";
  out += kChunkStart;
  out += delta;
  out += R"(,"logprobs":null,"finish_reason":)";
  out += finish;
  return out + "}]}\n\n";
}

std::string chunked(std::string_view body) {
  std::array<char, 16> size{};
  const auto [end, error] = std::to_chars(size.data(), size.data() + size.size(), body.size(), 16);
  return std::string(size.data(), end) + "\r\n" + std::string(body) + "\r\n";
}

struct Peer {
  int fd = -1;
  std::string input, output;
  std::size_t sent = 0;
  bool wants_write = false;
  bool streaming = false;
  std::int64_t left = 0;  // tokens of the answer under way
  bool waits = false;     // has an entry in the timetable
};

class Mock {
 public:
  explicit Mock(const MockOptions& options)
      : script_(options.script),
        role_(event(R"({"role":"assistant","content":""})", "null")),
        word_(event(R"({"content":")" + std::string(kWord) + R"("})", "null")),
        last_(chunked(event("{}", R"("length")") + "data: [DONE]\n\n") + "0\r\n\r\n") {}

  Status run(const Target& target) {
    FLOTILLA_TRY(listener_, listen_on(target));
    poller_.add(listener_, EPOLLIN, kListener);
    while (stopping == 0) {
      const std::int64_t next = due_.empty() ? 100'000'000 : due_.begin()->first - now_ns();
      for (const epoll_event& e : poller_.wait(std::min<std::int64_t>(next, 100'000'000))) {
        if (e.data.u64 == kListener) {
          accept_all();
          continue;
        }
        const auto at = peers_.find(static_cast<int>(e.data.u64));
        if (at == peers_.end()) continue;
        Peer& peer = *at->second;
        if ((e.events & EPOLLOUT) != 0 && !advance(peer)) continue;
        if ((e.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(peer);
      }
      const std::int64_t now = now_ns();
      while (!due_.empty() && due_.begin()->first <= now) {
        const int fd = due_.begin()->second;
        due_.erase(due_.begin());
        const auto at = peers_.find(fd);
        if (at == peers_.end() || !at->second->waits) continue;
        at->second->waits = false;
        advance(*at->second);
      }
    }
    return ok_status();
  }

 private:
  void accept_all() {
    while (true) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      auto peer = std::make_unique<Peer>();
      peer->fd = fd;
      poller_.add(fd, EPOLLIN, static_cast<std::uint64_t>(fd));
      peers_.emplace(fd, std::move(peer));
    }
  }

  void drop(Peer& peer) {
    ::close(peer.fd);
    std::erase_if(due_, [&](const auto& entry) { return entry.second == peer.fd; });
    peers_.erase(peer.fd);
  }

  void read(Peer& peer) {
    std::array<char, 16384> buffer;
    const ssize_t n = ::recv(peer.fd, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return drop(peer);
    peer.input.append(buffer.data(), static_cast<std::size_t>(n));
    begin_next(peer);
  }

  void begin_next(Peer& peer) {
    if (peer.streaming || peer.left > 0) return;
    const std::size_t head = peer.input.find("\r\n\r\n");
    if (head == std::string::npos) return;
    std::size_t length = 0;
    if (std::size_t at = peer.input.find("ontent-"); at < head) {
      at = peer.input.find("ength: ");
      if (at < head) length = std::strtoull(peer.input.c_str() + at + 7, nullptr, 10);
    }
    if (peer.input.size() < head + 4 + length) return;
    const std::string_view body = std::string_view(peer.input).substr(head + 4, length);
    const bool streamed = body.find("\"stream\":true") != std::string_view::npos;
    std::int64_t tokens = script_.tokens;
    if (const std::size_t at = body.find("\"max_tokens\":"); at != std::string_view::npos)
      tokens = std::min<std::int64_t>(tokens, std::strtoll(body.data() + at + 13, nullptr, 10));
    peer.input.erase(0, head + 4 + length);
    if (!streamed) {
      std::string text;
      for (std::int64_t i = 0; i < tokens; ++i) text += kWord;
      const std::string answer =
          R"({"id":"chatcmpl-0","object":"chat.completion","created":1764500000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":")" +
          text + R"("},"finish_reason":"length"}]})";
      peer.output += "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
                     std::to_string(answer.size()) + "\r\n\r\n" + answer;
      flush(peer);
      return;
    }
    peer.streaming = true;
    peer.left = tokens;
    peer.output += kHead;
    peer.output += chunked(role_);
    if (script_.first_ms > 0) return wait(peer, script_.first_ms);
    advance(peer);
  }

  void wait(Peer& peer, std::int64_t milliseconds) {
    if (!flush(peer)) return;
    peer.waits = true;
    due_.emplace(now_ns() + milliseconds * 1'000'000, peer.fd);
  }

  // False when the peer is gone.
  bool advance(Peer& peer) {
    while (true) {
      if (!flush(peer)) return false;
      if (!peer.streaming || peer.waits || peer.wants_write) return true;
      if (peer.left == 0) {
        peer.streaming = false;
        peer.output += last_;
        if (!flush(peer)) return false;
        begin_next(peer);
        return true;
      }
      do {
        const std::int64_t n = std::min(peer.left, script_.tokens_per_frame);
        std::string frame;
        for (std::int64_t i = 0; i < n; ++i) frame += word_;
        peer.output += chunked(frame);
        peer.left -= n;
      } while (script_.interval_ms == 0 && peer.left > 0 && peer.output.size() < kFullOutput);
      if (script_.interval_ms > 0 && peer.left > 0) {
        wait(peer, script_.interval_ms);
        return peers_.contains(peer.fd);
      }
      // The end travels with the last token.
      if (peer.left == 0) {
        peer.streaming = false;
        peer.output += last_;
      }
    }
  }

  // False when the peer is gone.
  bool flush(Peer& peer) {
    while (peer.sent < peer.output.size()) {
      const ssize_t n = ::send(peer.fd, peer.output.data() + peer.sent,
                               peer.output.size() - peer.sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) {
        if (!peer.wants_write)
          poller_.change(peer.fd, EPOLLIN | EPOLLOUT, static_cast<std::uint64_t>(peer.fd));
        peer.wants_write = true;
        return true;
      }
      if (n <= 0) {
        drop(peer);
        return false;
      }
      peer.sent += static_cast<std::size_t>(n);
    }
    peer.output.clear();
    peer.sent = 0;
    if (peer.wants_write) poller_.change(peer.fd, EPOLLIN, static_cast<std::uint64_t>(peer.fd));
    peer.wants_write = false;
    return true;
  }

  const Script script_;
  const std::string role_, word_, last_;
  int listener_ = -1;
  Poller poller_;
  std::unordered_map<int, std::unique_ptr<Peer>> peers_;
  std::multimap<std::int64_t, int> due_;
};

}  // namespace

Status run_mock(const MockOptions& options) {
  FLOTILLA_TRY(const Target target, parse_target(options.listen));
  FLOTILLA_TRY_STATUS(pin_to(options.cpu));
  raise_limits();
  std::signal(SIGTERM, [](int) { stopping = 1; });
  std::signal(SIGINT, [](int) { stopping = 1; });
  Mock mock(options);
  std::printf("serving at %s\n", options.listen.c_str());
  std::fflush(stdout);
  return mock.run(target);
}

}  // namespace flotilla::bench
