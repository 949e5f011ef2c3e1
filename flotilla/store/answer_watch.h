// Cuts the connection to a server that does not answer a statement: the client library itself would
// wait for ever as long as the other machine's kernel is alive.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace flotilla::store {

// One connection. A thread of its own looks at it now and then.
class AnswerWatch {
 public:
  explicit AnswerWatch(std::chrono::milliseconds limit);
  ~AnswerWatch();
  AnswerWatch(const AnswerWatch&) = delete;
  AnswerWatch& operator=(const AnswerWatch&) = delete;

  // Around every statement, by the thread that waits for it. `socket` stays open until end().
  void begin(int socket);
  void end();

 private:
  void watch();

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int socket_ = -1;                                             // guarded by mutex_
  std::optional<std::chrono::steady_clock::time_point> due_{};  // guarded by mutex_
  bool stopping_ = false;                                       // guarded by mutex_
  std::thread thread_;
};

}  // namespace flotilla::store
