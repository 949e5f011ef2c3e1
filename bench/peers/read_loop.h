// Reading as much memory as the weights take, and nothing else: the wall.
#pragma once

#include <atomic>
#include <cstring>

#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/cpu/thread_pool.h"

namespace flotilla::peers {

class ReadLoop {
 public:
  ReadLoop(std::size_t bytes, int threads)
      : bytes_(bytes / kPiece * kPiece + kPiece),
        pool_(threads),
        buffer_(tensor::make_host_buffer(bytes_)),
        kernels_(*backend::find_cpu_kernels(backend::CpuTarget::kAvx2)) {
    pool_.run(pieces(), [&](int i, int) { std::memset(piece(i), i, kPiece); });
  }
  void run() {
    pool_.run(pieces(), [&](int i, int) {
      sink_.fetch_xor(kernels_.read(piece(i), kPiece), std::memory_order_relaxed);
    });
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;
  int pieces() const { return static_cast<int>(bytes_ / kPiece); }
  std::byte* piece(int i) const { return buffer_->data() + static_cast<std::size_t>(i) * kPiece; }

  std::size_t bytes_;
  backend::ThreadPool pool_;
  std::shared_ptr<tensor::Buffer> buffer_;
  const backend::CpuKernels& kernels_;
  std::atomic<std::uint32_t> sink_{0};  // keeps the loop alive
};

}  // namespace flotilla::peers
