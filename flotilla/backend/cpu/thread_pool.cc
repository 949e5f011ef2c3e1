#include "flotilla/backend/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "flotilla/base/check.h"

namespace flotilla::backend {
namespace {

// Longer than the gap between two products of one step, short enough not to burn a core that is
// wanted elsewhere.
constexpr int kSpins = 4000;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// The cores that this process may use.
std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// Only for speed: where the system refuses, the thread runs anywhere.
void pin(std::thread& thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, bool pin_workers) : num_threads_(num_threads) {
  FLOTILLA_CHECK(num_threads >= 1, "a thread pool needs at least one thread");
  shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(num_threads));
  for (int i = 1; i < num_threads; ++i) {
    threads_.emplace_back([this, i] { worker(i); });
  }
  if (!pin_workers) return;
  const std::vector<int> cores = allowed_cores();
  for (std::size_t i = 0; i < threads_.size() && i + 1 < cores.size(); ++i) {
    pin(threads_[i], cores[i + 1]);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::work(int self) {
  for (int o = 0; o < num_threads_; ++o) {
    Share& s = shares_[static_cast<std::size_t>((self + o) % num_threads_)];
    for (int i; (i = s.next.fetch_add(1, std::memory_order_relaxed)) < s.end;) {
      call_(body_, i, self);
    }
  }
}

void ThreadPool::start(int num_items, Call call, const void* body) {
  if (threads_.empty() || num_items <= 1) {
    for (int i = 0; i < num_items; ++i) call(body, i, 0);
    return;
  }
  call_ = call;
  body_ = body;
  const auto items = static_cast<std::int64_t>(num_items);
  for (int t = 0; t < num_threads_; ++t) {
    Share& s = shares_[static_cast<std::size_t>(t)];
    s.next.store(static_cast<int>(items * t / num_threads_), std::memory_order_relaxed);
    s.end = static_cast<int>(items * (t + 1) / num_threads_);
  }
  running_.store(num_threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  // Every worker must have left work() before shares and body may change.
  for (int s = 0; s < kSpins; ++s) {
    if (running_.load(std::memory_order_acquire) == 0) return;
    pause();
  }
  for (int r; (r = running_.load(std::memory_order_acquire)) != 0;) running_.wait(r);
}

void ThreadPool::worker(int self) {
  std::uint32_t seen = 0;
  for (;;) {
    for (int s = 0; s < kSpins && generation_.load(std::memory_order_acquire) == seen; ++s) pause();
    while (generation_.load(std::memory_order_acquire) == seen) generation_.wait(seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    work(self);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

int usable_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  if (std::FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    long long quota = 0, period = 0;  // "max 100000" leaves both at 0
    if (std::fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
      cores = static_cast<int>(
          std::min<long long>(cores, std::max<long long>(1, (quota + period - 1) / period)));
    }
    std::fclose(f);
  }
  return std::max(1, cores);
}

}  // namespace flotilla::backend
