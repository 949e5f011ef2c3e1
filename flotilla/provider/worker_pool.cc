#include "flotilla/provider/worker_pool.h"

#include <algorithm>
#include <exception>

#include "flotilla/base/check.h"

namespace flotilla::provider {

WorkerPool::WorkerPool(int num_threads, std::size_t max_queued) : queue_(max_queued) {
  for (int i = 0; i < std::max(1, num_threads); ++i) {
    threads_.emplace_back([this] {
      try {
        while (auto task = queue_.pop()) (*task)();
      } catch (const std::exception& e) {
        FLOTILLA_CHECK(false, e.what());
      }
    });
  }
}

WorkerPool::~WorkerPool() {
  queue_.close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace flotilla::provider
