#include "flotilla/backend/cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "flotilla/backend/cuda/card_use.h"
#include "flotilla/backend/device_error.h"

namespace flotilla::backend::cuda {
namespace {

class DeviceBuffer final : public tensor::Buffer {
 public:
  DeviceBuffer(std::byte* data, std::size_t size) : Buffer(data, size) {}
  // After a device fault freeing fails as well; the memory went with the context.
  ~DeviceBuffer() override { (void)cudaFree(data_); }
};

constexpr std::size_t kAlignment = 256;

}  // namespace

void check_cuda(int error, const char* what) {
  if (error == cudaSuccess) return;
  const auto code = static_cast<cudaError_t>(error);
  (void)cudaGetLastError();
  // After a fault in a kernel or of the hardware every call of the context fails alike.
  const bool lost = code != cudaErrorMemoryAllocation && code != cudaErrorInvalidValue &&
                    cudaStreamQuery(cudaStreamLegacy) == code;
  if (lost) CardUse::mark_lost();
  throw DeviceError(std::string("CUDA: ") + what + ": " + cudaGetErrorString(code) + " (" +
                        cudaGetErrorName(code) + ")",
                    lost);
}

Result<std::shared_ptr<tensor::Buffer>> make_device_buffer(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes == 0 ? 1 : bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    return Error{ErrorCode::kResourceExhausted, "device memory: " + std::to_string(bytes) +
                                                    " bytes needed, " + std::to_string(free) +
                                                    " of " + std::to_string(total) + " are free"};
  }
  check_cuda(error, "allocating memory");
  return std::shared_ptr<tensor::Buffer>(
      std::make_shared<DeviceBuffer>(static_cast<std::byte*>(data), bytes));
}

class PinnedPool::Piece final : public tensor::Buffer {
 public:
  Piece(std::shared_ptr<PinnedPool> pool, std::byte* data, std::size_t size, std::size_t capacity)
      : Buffer(data, size), pool_(std::move(pool)), capacity_(capacity) {}
  ~Piece() override {
    std::lock_guard lock(pool_->mutex_);
    pool_->free_.emplace(capacity_, data_);
  }

 private:
  const std::shared_ptr<PinnedPool> pool_;
  const std::size_t capacity_;
};

PinnedPool::~PinnedPool() {
  for (const auto& [size, data] : free_) (void)cudaFreeHost(data);
}

std::shared_ptr<tensor::Buffer> PinnedPool::allocate(std::size_t bytes) {
  const std::size_t wanted = std::max<std::size_t>(std::bit_ceil(bytes), 4096);
  std::byte* data = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (const auto it = free_.find(wanted); it != free_.end()) {
      data = it->second;
      free_.erase(it);
    }
  }
  if (data == nullptr) {
    void* made = nullptr;
    check_cuda(cudaMallocHost(&made, wanted), "allocating pinned memory");
    data = static_cast<std::byte*>(made);
  }
  return std::make_shared<Piece>(shared_from_this(), data, bytes, wanted);
}

class ScratchRegion::Piece final : public tensor::Buffer {
 public:
  Piece(std::shared_ptr<ScratchRegion> region, std::size_t offset, std::size_t size,
        std::size_t reserved)
      : Buffer(region->memory_->data() + offset, size),
        region_(std::move(region)),
        offset_(offset),
        reserved_(reserved) {}
  ~Piece() override { region_->release(offset_, reserved_); }

 private:
  std::shared_ptr<ScratchRegion> region_;
  std::size_t offset_, reserved_;
};

ScratchRegion::ScratchRegion(std::shared_ptr<tensor::Buffer> memory) : memory_(std::move(memory)) {
  free_[0] = memory_->size();
}

std::shared_ptr<tensor::Buffer> ScratchRegion::allocate(std::size_t bytes) {
  const std::size_t needed = (bytes + kAlignment) / kAlignment * kAlignment;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < needed) continue;
    const std::size_t offset = it->first, left = it->second - needed;
    free_.erase(it);
    if (left > 0) free_[offset + needed] = left;
    used_ += needed;
    return std::make_shared<Piece>(shared_from_this(), offset, bytes, needed);
  }
  throw DeviceError("a step needs " + std::to_string(bytes) + " bytes more of scratch memory, " +
                    std::to_string(used_) + " of " + std::to_string(size()) + " are in use");
}

void ScratchRegion::release(std::size_t offset, std::size_t bytes) {
  used_ -= bytes;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

}  // namespace flotilla::backend::cuda
