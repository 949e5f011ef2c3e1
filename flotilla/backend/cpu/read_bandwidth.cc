#include "flotilla/backend/cpu/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/cpu/thread_pool.h"

namespace flotilla::backend {

double measure_read_bandwidth(int num_threads, int rounds) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  constexpr int kPieces = static_cast<int>(kBytes / kPiece);
  const CpuKernels& kernels = *find_cpu_kernels(CpuTarget::kBest);
  ThreadPool pool(num_threads > 0 ? num_threads : usable_cores());
  const auto buffer = tensor::make_host_buffer(kBytes);
  pool.run(kPieces, [&](int i, int) {
    std::memset(buffer->data() + static_cast<std::size_t>(i) * kPiece, i, kPiece);
  });
  std::atomic<std::uint32_t> sink{0};  // keeps the loop alive
  std::vector<double> rates;
  for (int round = 0; round < std::max(1, rounds); ++round) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run(kPieces, [&](int i, int) {
      sink.fetch_xor(kernels.read(buffer->data() + static_cast<std::size_t>(i) * kPiece, kPiece),
                     std::memory_order_relaxed);
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    rates.push_back(static_cast<double>(kBytes) / elapsed.count());
  }
  std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2),
                   rates.end());
  return rates[rates.size() / 2];
}

}  // namespace flotilla::backend
