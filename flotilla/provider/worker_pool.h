// Threads for work that must not hold up an I/O strand: rendering, tokenising, loading.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "flotilla/base/bounded_queue.h"

namespace flotilla::provider {

// Thread-safe. The destructor finishes what is queued.
class WorkerPool {
 public:
  WorkerPool(int num_threads, std::size_t max_queued);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  // False when the queue is full.
  bool try_post(std::function<void()> task) { return queue_.try_push(std::move(task)); }

 private:
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace flotilla::provider
