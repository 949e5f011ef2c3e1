// What a card offers beside the operations: for `flotilla doctor`, tests and benches. Nothing of
// CUDA in this header.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "flotilla/backend/backend.h"

namespace flotilla::backend::cuda {

struct CudaDeviceInfo {
  std::string name;  // "NVIDIA H200"
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;
  std::string driver;  // "13.0"
};
// kUnavailable with the driver's words.
Result<CudaDeviceInfo> probe_cuda_device(int device);
// Gives back what this process holds of the card, after probing or checking it, when another
// process is to compute there. No backend of the card may exist.
void release_cuda_device(int device);

struct SelfTest {
  long long outputs = 0;
  long long differences = 0;  // between wgmma and mma.sync; -1: the test could not run
};

class CudaDevice {
 public:
  virtual ~CudaDevice() = default;
  // A packed matrix of made-up weights with variance 1 / k, made on the card.
  virtual std::unique_ptr<Matrix> synthetic_matrix(std::int64_t n, std::int64_t k,
                                                   std::uint64_t seed) = 0;
  // The same in any format that the fast kernels serve, of variance 1 / k or so; null in others.
  virtual std::unique_ptr<Matrix> synthetic_matrix(WeightFormat format, int bits, int group_size,
                                                   std::int64_t n, std::int64_t k,
                                                   std::uint64_t seed) = 0;
  // Adds the number of 32-bit words in which two tensors on the card differ to the int64 `count`.
  virtual void count_differences(const Tensor& a, const Tensor& b, const Tensor& count) = 0;
  // Bytes per second of reading a buffer that is larger than the cache: the best of `repeats`.
  virtual double read_bandwidth(std::size_t bytes, int repeats) = 0;
  // Seconds that the operations called by `work` take on the card.
  virtual double timed(const std::function<void()>& work) = 0;
  virtual SelfTest self_test() = 0;
  // For tests: a kernel that writes where there is no memory. The card is lost soon afterwards.
  virtual void inject_fault() = 0;
  // Whether decode steps are recorded and replayed; on by default.
  virtual void set_graphs(bool on) = 0;
  virtual std::uint64_t num_replays() const = 0;
  // Time that replayed steps spent on the processor before their launch, in all.
  virtual double replay_seconds() const = 0;
};

// The device behind a backend of make_cuda_backend(), null for any other.
CudaDevice* cuda_device(Backend& backend);

}  // namespace flotilla::backend::cuda
