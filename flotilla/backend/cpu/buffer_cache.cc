#include "flotilla/backend/cpu/buffer_cache.h"

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace flotilla::backend {

namespace {
// Activations are made of what people wrote: nothing of them stays behind in freed memory.
void wipe(const tensor::Buffer& buffer) {
  std::memset(buffer.data(), 0, buffer.size());
  asm volatile("" : : "r"(buffer.data()) : "memory");
}
}  // namespace

struct BufferCache::State {
  ~State() {
    for (const auto& [size, buffers] : idle) {
      for (const auto& buffer : buffers) wipe(*buffer);
    }
  }
  std::mutex mutex;
  std::map<std::size_t, std::vector<std::shared_ptr<tensor::Buffer>>> idle;  // guarded by mutex
  std::size_t idle_bytes = 0;                                                // guarded by mutex
  std::size_t max_idle_bytes = 0;
};

class BufferCache::Lease final : public tensor::Buffer {
 public:
  Lease(std::shared_ptr<tensor::Buffer> storage, std::size_t bytes, std::weak_ptr<State> home)
      : Buffer(storage->data(), bytes), storage_(std::move(storage)), home_(std::move(home)) {}
  ~Lease() override {
    const std::shared_ptr<State> state = home_.lock();
    const std::size_t size = storage_->size();
    if (state != nullptr) {
      const std::lock_guard lock(state->mutex);
      if (state->idle_bytes + size <= state->max_idle_bytes) {
        state->idle_bytes += size;
        state->idle[size].push_back(std::move(storage_));
        return;
      }
    }
    wipe(*storage_);
  }

 private:
  std::shared_ptr<tensor::Buffer> storage_;
  std::weak_ptr<State> home_;
};

namespace {
// Four sizes per power of two: at most a quarter is wasted.
std::size_t size_class(std::size_t bytes) {
  constexpr std::size_t kSmallest = 256;
  if (bytes <= kSmallest) return kSmallest;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}
}  // namespace

BufferCache::BufferCache(std::size_t max_idle_bytes) : state_(std::make_shared<State>()) {
  state_->max_idle_bytes = max_idle_bytes;
}
BufferCache::~BufferCache() = default;

std::shared_ptr<tensor::Buffer> BufferCache::get(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  std::shared_ptr<tensor::Buffer> storage;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->idle.find(size);
    if (found != state_->idle.end() && !found->second.empty()) {
      storage = std::move(found->second.back());
      found->second.pop_back();
      state_->idle_bytes -= size;
    }
  }
  if (storage == nullptr) storage = tensor::make_host_buffer(size);
  return std::make_shared<Lease>(std::move(storage), bytes, state_);
}

std::size_t BufferCache::idle_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->idle_bytes;
}

}  // namespace flotilla::backend
