#include "flotilla/backend/cuda/host_upload.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "flotilla/backend/cuda/device_memory.h"

namespace flotilla::backend::cuda {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr unsigned kMostThreads = 8;
constexpr int kBuffers = 2;  // of a worker: one fills while the other travels

}  // namespace

struct HostUpload::Worker {
  std::byte* buffers[kBuffers] = {};
  cudaEvent_t sent[kBuffers] = {};
  cudaStream_t stream = nullptr;
  unsigned job_done = 0;
  std::thread thread;

  ~Worker() {
    for (cudaEvent_t event : sent) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
    for (std::byte* buffer : buffers) (void)cudaFreeHost(buffer);
  }
};

HostUpload::HostUpload(int device) : device_(device) {
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  check_cuda(cudaSetDevice(device), "choosing the device");
  for (unsigned i = 0; i < count; ++i) {
    auto worker = std::make_unique<Worker>();
    check_cuda(cudaStreamCreateWithFlags(&worker->stream, cudaStreamNonBlocking),
               "making a stream");
    for (int b = 0; b < kBuffers; ++b) {
      void* memory = nullptr;
      check_cuda(cudaMallocHost(&memory, kPiece), "allocating pinned memory");
      worker->buffers[b] = static_cast<std::byte*>(memory);
      check_cuda(cudaEventCreateWithFlags(&worker->sent[b], cudaEventDisableTiming),
                 "making an event");
    }
    workers_.push_back(std::move(worker));
  }
  for (auto& worker : workers_) worker->thread = std::thread([this, &worker] { run(*worker); });
}

HostUpload::~HostUpload() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

void HostUpload::run(Worker& worker) {
  (void)cudaSetDevice(device_);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || worker.job_done != job_; });
    if (stopping_) return;
    lock.unlock();
    copy_pieces(worker);
    lock.lock();
    worker.job_done = job_;
    --busy_;
    changed_.notify_all();
  }
}

// What is copied does not change while workers are busy.
void HostUpload::copy_pieces(Worker& worker) {
  cudaError_t error = cudaSuccess;
  for (int turn = 0; error == cudaSuccess; turn = (turn + 1) % kBuffers) {
    const std::size_t begin = next_.fetch_add(kPiece);
    if (begin >= bytes_) break;
    const std::size_t count = std::min(kPiece, bytes_ - begin);
    error = cudaEventSynchronize(worker.sent[turn]);
    if (error != cudaSuccess) break;
    std::memcpy(worker.buffers[turn], from_ + begin, count);
    error = cudaMemcpyAsync(to_ + begin, worker.buffers[turn], count, cudaMemcpyHostToDevice,
                            worker.stream);
    if (error == cudaSuccess) error = cudaEventRecord(worker.sent[turn], worker.stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(worker.stream);
  if (error == cudaSuccess) return;
  const std::lock_guard lock(mutex_);
  error_ = error;
}

void HostUpload::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  std::unique_lock lock(mutex_);
  to_ = to;
  from_ = from;
  bytes_ = bytes;
  next_ = 0;
  error_ = 0;
  busy_ = workers_.size();
  ++job_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return busy_ == 0; });
  check_cuda(error_, "copying weights");
}

}  // namespace flotilla::backend::cuda
