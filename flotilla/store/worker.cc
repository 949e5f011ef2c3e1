#include "flotilla/store/worker.h"

#include <thread>

#include "flotilla/base/bounded_queue.h"

namespace flotilla::store {

struct Worker::Impl {
  Impl(Database db, std::size_t max_queued) : database(std::move(db)), queue(max_queued) {
    thread = std::thread([this] {
      while (auto task = queue.pop()) (*task)(database);
    });
  }
  Database database;
  BoundedQueue<Task> queue;
  std::thread thread;
};

Worker::Worker(Database database, std::size_t max_queued)
    : impl_(std::make_unique<Impl>(std::move(database), max_queued)) {}

Worker::~Worker() {
  impl_->queue.close();
  impl_->thread.join();
}

bool Worker::try_post(Task task) { return impl_->queue.try_push(std::move(task)); }

}  // namespace flotilla::store
