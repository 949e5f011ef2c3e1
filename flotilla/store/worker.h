// The one thread that uses a database, so that nobody else ever waits for it.
#pragma once

#include <functional>
#include <memory>

#include "flotilla/store/database.h"

namespace flotilla::store {

class Worker {
 public:
  using Task = std::function<void(Database&)>;
  Worker(Database database, std::size_t max_queued);
  ~Worker();  // finishes what is queued, then joins
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // From any thread. False when the queue is full: the task is dropped and the caller says "busy".
  bool try_post(Task task);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flotilla::store
