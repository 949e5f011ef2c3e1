#include "bench/fleet/client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace flotilla::bench {

constexpr std::size_t kReadBytes = 256u << 10;

Client::Client(Target target, std::size_t max_connections, Events events)
    : target_(std::move(target)), max_connections_(max_connections), events_(std::move(events)) {
  buffer_.resize(kReadBytes);
}

Client::~Client() {
  for (const auto& connection : connections_)
    if (connection->fd >= 0) ::close(connection->fd);
}

void Client::start(Call call) {
  if (!launch(call)) waiting_.push_back(std::move(call));
}

bool Client::launch(Call& call) {
  std::size_t index = 0;
  if (!idle_.empty()) {
    index = idle_.back();
    idle_.pop_back();
  } else if (!closed_.empty()) {
    index = closed_.back();
    closed_.pop_back();
  } else if (connections_.size() < max_connections_) {
    index = connections_.size();
    connections_.push_back(std::make_unique<Connection>());
  } else {
    return false;
  }
  Connection& connection = *connections_[index];
  connection.call = std::move(call);
  connection.busy = true;
  connection.sent = 0;
  connection.reader.reset();
  ++in_flight_;
  if (connection.fd < 0) {
    auto fd = connect_to(target_);
    if (!fd.ok()) {
      finish(index, "connect: " + fd.error().message);
      return true;
    }
    connection.fd = *fd;
    connection.connecting = true;
    ++connections_made_;
    poller_.add(*fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, index);
    return true;
  }
  send_more(index);
  return true;
}

void Client::send_more(std::size_t index) {
  Connection& connection = *connections_[index];
  const std::string& bytes = connection.call.bytes;
  while (connection.sent < bytes.size()) {
    const ssize_t n = ::send(connection.fd, bytes.data() + connection.sent,
                             bytes.size() - connection.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) {
      poller_.change(connection.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP, index);
      return;
    }
    if (n <= 0) return finish(index, std::string("send: ") + std::strerror(errno));
    connection.sent += static_cast<std::size_t>(n);
  }
}

void Client::receive(std::size_t index) {
  Connection& connection = *connections_[index];
  while (connection.fd >= 0) {
    const ssize_t n = ::recv(connection.fd, buffer_.data(), buffer_.size(), 0);
    if (n < 0 && errno == EAGAIN) return;
    if (!connection.busy) {  // an idle connection has nothing to say: the server closed it
      drop(connection);
      std::erase(idle_, index);
      closed_.push_back(index);
      return;
    }
    if (n <= 0) {
      return finish(index, n == 0 ? (connection.reader.status() == 0 ? "closed before the answer"
                                                                     : "cut within the answer")
                                  : std::string("receive: ") + std::strerror(errno));
    }
    connection.reader.feed({buffer_.data(), static_cast<std::size_t>(n)});
    if (connection.call.first == 0 && connection.reader.has_body()) {
      connection.call.first = now_ns();
      if (events_.on_first) events_.on_first(connection.call);
    }
    if (connection.reader.broken()) return finish(index, "not HTTP");
    if (connection.reader.done()) return finish(index, {});
    if (static_cast<std::size_t>(n) < buffer_.size()) return;
  }
}

void Client::finish(std::size_t index, const std::string& error) {
  Connection& connection = *connections_[index];
  Call call = std::move(connection.call);
  const ResponseReader reader = connection.reader;
  connection.busy = false;
  --in_flight_;
  const bool keep = error.empty() && !reader.closes();
  if (!keep) drop(connection);
  (keep ? idle_ : closed_).push_back(index);
  if (error.empty()) {
    events_.on_whole(call, reader);
  } else {
    events_.on_error(call, error);
  }
}

void Client::drop(Connection& connection) {
  if (connection.fd >= 0) ::close(connection.fd);
  connection.fd = -1;
  connection.connecting = false;
}

void Client::start_waiting() {
  while (waiting_from_ < waiting_.size() && launch(waiting_[waiting_from_])) ++waiting_from_;
  if (waiting_from_ == waiting_.size()) {
    waiting_.clear();
    waiting_from_ = 0;
  }
}

void Client::poll(std::int64_t nanoseconds) {
  for (const epoll_event& event : poller_.wait(nanoseconds)) {
    const auto index = static_cast<std::size_t>(event.data.u64);
    Connection& connection = *connections_[index];
    if (connection.fd < 0) continue;
    if (connection.connecting && (event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
      connection.connecting = false;
      int problem = 0;
      socklen_t size = sizeof problem;
      ::getsockopt(connection.fd, SOL_SOCKET, SO_ERROR, &problem, &size);
      if (problem != 0) {
        finish(index, std::string("connect: ") + std::strerror(problem));
        continue;
      }
    }
    if ((event.events & EPOLLOUT) != 0 && connection.busy) {
      send_more(index);
      if (connection.fd >= 0 && connection.sent == connection.call.bytes.size())
        poller_.change(connection.fd, EPOLLIN | EPOLLRDHUP, index);
    }
    if (connection.fd >= 0 && (event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
      receive(index);
  }
  start_waiting();
}

void Client::expire(std::int64_t scheduled_before) {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    if (connections_[i]->busy && connections_[i]->call.scheduled < scheduled_before)
      finish(i, "no answer in time");
  }
  while (waiting_from_ < waiting_.size() && waiting_[waiting_from_].scheduled < scheduled_before)
    events_.on_error(waiting_[waiting_from_++], "no answer in time");
}

}  // namespace flotilla::bench
