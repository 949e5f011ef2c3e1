#include "bench/fleet/sockets.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "flotilla/base/check.h"
#include "flotilla/net/file_limit.h"

namespace flotilla::bench {
namespace {

Error failed(const char* what) {
  return {ErrorCode::kUnavailable, std::string(what) + ": " + std::strerror(errno)};
}

sockaddr_in address_of(const Target& target) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(target.port);
  ::inet_pton(AF_INET, target.host.c_str(), &out.sin_addr);
  return out;
}

}  // namespace

Result<Target> parse_target(std::string_view url) {
  const Error bad{ErrorCode::kInvalidArgument,
                  "'" + std::string(url) + "' is not http://IPV4:PORT/PATH"};
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return bad;
  url.remove_prefix(kScheme.size());
  Target out;
  const std::size_t slash = std::min(url.find('/'), url.size());
  out.path = slash < url.size() ? url.substr(slash) : "/";
  const std::string_view authority = url.substr(0, slash);
  const std::size_t colon = authority.find(':');
  if (colon == std::string_view::npos) return bad;
  out.host = authority.substr(0, colon);
  const std::string_view port = authority.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  in_addr ignored{};
  if (error != std::errc() || end != port.data() + port.size() ||
      ::inet_pton(AF_INET, out.host.c_str(), &ignored) != 1)
    return bad;
  return out;
}

Result<int> connect_to(const Target& target) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed("socket");
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const sockaddr_in to = address_of(target);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 &&
      errno != EINPROGRESS) {
    Error error = failed("connect");
    ::close(fd);
    return error;
  }
  return fd;
}

Result<int> listen_on(const Target& target) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed("socket");
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in at = address_of(target);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(fd, SOMAXCONN) != 0) {
    Error error = failed("listen");
    ::close(fd);
    return error;
  }
  return fd;
}

std::size_t raise_limits() {
  ::prctl(PR_SET_TIMERSLACK, 1);  // waits end when they should, not 50 us later
  return net::raise_file_limit();
}

Status pin_to(int cpu) {
  if (cpu < 0) return ok_status();
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) return failed("sched_setaffinity");
  return ok_status();
}

Poller::Poller() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
  FLOTILLA_CHECK(fd_ >= 0, "epoll_create1 failed");
}

Poller::~Poller() { ::close(fd_); }

void Poller::add(int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  FLOTILLA_CHECK(::epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl add failed");
}

void Poller::change(int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  FLOTILLA_CHECK(::epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &event) == 0, "epoll_ctl mod failed");
}

std::span<const epoll_event> Poller::wait(std::int64_t nanoseconds) {
  const std::int64_t left = std::max<std::int64_t>(0, nanoseconds);
  const timespec limit{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
  const int n = ::epoll_pwait2(fd_, events_, static_cast<int>(std::size(events_)), &limit, nullptr);
  return {events_, static_cast<std::size_t>(std::max(0, n))};
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace flotilla::bench
