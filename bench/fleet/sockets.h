// Plain non-blocking sockets and one epoll set: the tools measure servers, so they share no network
// code with them.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla::bench {

struct Target {
  std::string host;  // an IPv4 address
  std::uint16_t port = 0;
  std::string path;
};
// "http://127.0.0.1:8080/v1/chat/completions"
Result<Target> parse_target(std::string_view url);

// Descriptors; the caller closes them.
Result<int> connect_to(const Target& target);  // under way: writable when it is there
Result<int> listen_on(const Target& target);   // the path is ignored

// For the files and connections of ten thousand streams.
std::size_t raise_limits();
// This process runs on one processor from now on; negative: wherever it likes.
Status pin_to(int cpu);

// One thread.
class Poller {
 public:
  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;
  void add(int fd, std::uint32_t events, std::uint64_t tag);
  void change(int fd, std::uint32_t events, std::uint64_t tag);
  // Waits until something happens or for `nanoseconds`, with their precision.
  std::span<const epoll_event> wait(std::int64_t nanoseconds);

 private:
  int fd_;
  epoll_event events_[256];
};

std::int64_t now_ns();  // monotonic

}  // namespace flotilla::bench
