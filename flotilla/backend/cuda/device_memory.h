// Memory of one card. Everything is taken in large pieces outside of steps; a step only cuts up a
// region that is already there.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/tensor/tensor.h"

namespace flotilla::backend::cuda {

// Throws DeviceError with the runtime's words when `error`, a cudaError_t, is not success.
void check_cuda(int error, const char* what);

// Owned by one buffer and freed with it. Not initialised.
// kResourceExhausted names the bytes asked for and those free.
Result<std::shared_ptr<tensor::Buffer>> make_device_buffer(std::size_t bytes);

// Pinned host memory, used again and again: what comes from the card. Thread-safe.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  ~PinnedPool();
  // Throws DeviceError when there is none. Goes back with the buffer.
  std::shared_ptr<tensor::Buffer> allocate(std::size_t bytes);

 private:
  class Piece;
  std::mutex mutex_;
  std::multimap<std::size_t, std::byte*> free_;  // by size
};

// Scratch memory of steps. The address that allocate() gives depends on the allocations and frees
// since the region was last empty alone, so equal steps get equal addresses. Freed memory may be
// handed out while earlier work of the stream still uses it: work is ordered by the stream.
class ScratchRegion : public std::enable_shared_from_this<ScratchRegion> {
 public:
  explicit ScratchRegion(std::shared_ptr<tensor::Buffer> memory);
  // Throws DeviceError when the region is too small.
  std::shared_ptr<tensor::Buffer> allocate(std::size_t bytes);
  std::size_t used_bytes() const { return used_; }
  std::size_t size() const { return memory_->size(); }

 private:
  class Piece;
  void release(std::size_t offset, std::size_t bytes);

  std::shared_ptr<tensor::Buffer> memory_;
  std::map<std::size_t, std::size_t> free_;  // offset to bytes; neighbours are joined
  std::size_t used_ = 0;
};

}  // namespace flotilla::backend::cuda
