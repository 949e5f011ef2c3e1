// Copies mapped files to the card at the speed of the disk: several threads read pages into pinned
// memory, each with a stream of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace flotilla::backend::cuda {

// One caller at a time.
class HostUpload {
 public:
  // Throws DeviceError when there is no pinned memory.
  explicit HostUpload(int device);
  ~HostUpload();
  HostUpload(const HostUpload&) = delete;
  HostUpload& operator=(const HostUpload&) = delete;

  // Returns when the bytes are on the card. Throws DeviceError.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  struct Worker;
  void run(Worker& worker);
  void copy_pieces(Worker& worker);

  const int device_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, except that workers take pieces by next_ alone.
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  std::size_t bytes_ = 0;
  std::atomic<std::size_t> next_{0};
  unsigned job_ = 0;      // rises with each copy()
  std::size_t busy_ = 0;  // workers that are not done with it
  int error_ = 0;         // a cudaError_t
  bool stopping_ = false;
};

}  // namespace flotilla::backend::cuda
