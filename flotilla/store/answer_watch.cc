#include "flotilla/store/answer_watch.h"

#include <sys/socket.h>

#include <algorithm>

namespace flotilla::store {

AnswerWatch::AnswerWatch(std::chrono::milliseconds limit)
    : limit_(limit), thread_([this] { watch(); }) {}

AnswerWatch::~AnswerWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void AnswerWatch::begin(int socket) {
  std::lock_guard lock(mutex_);
  socket_ = socket;
  due_ = std::chrono::steady_clock::now() + limit_;
}

void AnswerWatch::end() {
  std::lock_guard lock(mutex_);
  due_.reset();
}

void AnswerWatch::watch() {
  // Nobody is woken for a statement: it is enough to look often compared with the limit.
  const auto every = std::clamp<std::chrono::milliseconds>(
      limit_ / 10, std::chrono::milliseconds(10), std::chrono::milliseconds(1'000));
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, every);
    if (!due_ || std::chrono::steady_clock::now() < *due_) continue;
    // Whoever waits for it finds the connection lost.
    if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
    due_.reset();
  }
}

}  // namespace flotilla::store
