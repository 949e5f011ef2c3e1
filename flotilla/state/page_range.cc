#include "flotilla/state/page_range.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace flotilla::state {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSystemPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLeastPage = 4 * kSystemPage;

// Sanitizers see what reaches beyond a page only where each is an allocation of its own.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReserve = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kReserve = false;
#else
constexpr bool kReserve = true;
#endif
#else
constexpr bool kReserve = true;
#endif

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

PageRange::PageRange(std::size_t page_bytes, std::size_t max_bytes) : page_bytes_(page_bytes) {
  const bool fits = page_bytes % kSystemPage == 0 && page_bytes >= kLeastPage;
  if (!kReserve || !fits || max_bytes < page_bytes) return;
  const std::size_t bytes = round_up(max_bytes / page_bytes * page_bytes, kHugePage) + kHugePage;
  void* range = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return;
  // Only what lies between two limits of huge pages is kept.
  auto* const start = static_cast<std::byte*>(range);
  const std::size_t skipped = round_up(reinterpret_cast<std::uintptr_t>(start), kHugePage) -
                              reinterpret_cast<std::uintptr_t>(start);
  if (skipped > 0) ::munmap(start, skipped);
  if (skipped < kHugePage) ::munmap(start + bytes - (kHugePage - skipped), kHugePage - skipped);
  begin_ = start + skipped;
  range_bytes_ = bytes - kHugePage;
  ::madvise(begin_, range_bytes_, MADV_HUGEPAGE);  // where there are none, small ones do
}

PageRange::~PageRange() {
  if (begin_ != nullptr) ::munmap(begin_, range_bytes_);
}

float* PageRange::take() {
  if (begin_ == nullptr) {
    void* page = std::aligned_alloc(kAlignment, round_up(page_bytes_, kAlignment));
    if (page != nullptr) std::memset(page, 0, page_bytes_);
    return static_cast<float*>(page);
  }
  std::byte* page = begin_ + used_;
  if (!returned_.empty()) {
    page = *returned_.begin();
    returned_.erase(returned_.begin());
  } else if (used_ + page_bytes_ <= range_bytes_) {
    used_ += page_bytes_;
  } else {
    return nullptr;
  }
  return reinterpret_cast<float*>(page);
}

void PageRange::give_back(float* page) {
  if (begin_ == nullptr) return std::free(page);
  auto* const at = reinterpret_cast<std::byte*>(page);
  ::madvise(at, page_bytes_, MADV_DONTNEED);  // reads as zero from now on
  returned_.insert(at);
}

}  // namespace flotilla::state
