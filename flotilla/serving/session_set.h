// The running requests of a surface: keeps them alive, counts them, waits for their end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace flotilla::serving {

class ChatSession;

// Thread-safe.
class SessionSet {
 public:
  // False when the surface is closing: the session must not start.
  bool insert(std::shared_ptr<ChatSession> session);
  void erase(const std::shared_ptr<ChatSession>& session);
  std::size_t size() const;
  // No further inserts; returns what is running.
  std::vector<std::shared_ptr<ChatSession>> close();
  // True once nothing runs any more.
  bool wait_until_empty(std::chrono::milliseconds timeout);

 private:
  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  std::unordered_set<std::shared_ptr<ChatSession>> sessions_;  // guarded by mutex_
  bool closed_ = false;                                        // guarded by mutex_
};

}  // namespace flotilla::serving
