#include "flotilla/worker/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace flotilla::worker {
namespace {

struct Head {
  std::uint64_t size = 0, tag = 0;
  Kind kind = Kind::kStats;
};
constexpr std::size_t kHeadBytes = 17;
constexpr std::chrono::seconds kFlushPatience{5};
constexpr std::uint64_t kMaxBody = std::uint64_t{1} << 32;

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool read_all(int fd, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, to, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

Channel::Channel(int fd) : fd_(fd), writer_([this] { write_loop(); }) {}

Channel::~Channel() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  ::shutdown(fd_, SHUT_RDWR);  // a write that waits for a reader ends
  writer_.join();
  ::close(fd_);
}

void Channel::send(Kind kind, std::uint64_t tag, std::string_view body) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_ || stopping_) return;
    Writer head;
    head(static_cast<std::uint64_t>(body.size()), tag, kind);
    outgoing_ += head.take();
    outgoing_ += body;
  }
  wake_.notify_one();
}

std::optional<Frame> Channel::receive() {
  std::string bytes(kHeadBytes, '\0');
  if (!read_all(fd_, bytes.data(), bytes.size())) return std::nullopt;
  Head head;
  if (!unpack(bytes, head.size, head.tag, head.kind) || head.size > kMaxBody) return std::nullopt;
  Frame frame{.kind = head.kind, .tag = head.tag, .body = std::string(head.size, '\0')};
  if (!read_all(fd_, frame.body.data(), frame.body.size())) return std::nullopt;
  return frame;
}

void Channel::flush() {
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, kFlushPatience,
                 [this] { return broken_ || (outgoing_.empty() && !writing_); });
}

void Channel::finish_sending() {
  flush();
  ::shutdown(fd_, SHUT_WR);
}

void Channel::write_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !outgoing_.empty(); });
    if (stopping_) return;
    const std::string bytes = std::exchange(outgoing_, {});
    writing_ = true;
    lock.unlock();
    const bool written = write_all(fd_, bytes);
    lock.lock();
    writing_ = false;
    if (!written) {
      broken_ = true;
      outgoing_.clear();
    }
    idle_.notify_all();
    if (broken_) wake_.wait(lock, [this] { return stopping_; });
  }
}

}  // namespace flotilla::worker
