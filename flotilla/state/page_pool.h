// Memory for key-value pages: a byte budget shared by pages of different geometries.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "flotilla/base/result.h"
#include "flotilla/state/page_memory.h"
#include "flotilla/tensor/kv_layout.h"

namespace flotilla::state {

class PagePool;

// A counted reference to a page. Move-only; share() makes another. Some references belong to a
// cache: a page that only such references hold is idle, its memory can be had by asking the cache.
class PageRef {
 public:
  PageRef() = default;
  PageRef(PageRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        page_(std::exchange(other.page_, nullptr)),
        cached_(std::exchange(other.cached_, false)) {}
  PageRef& operator=(PageRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(page_, other.page_);
    std::swap(cached_, other.cached_);
    return *this;
  }
  ~PageRef() { reset(); }

  explicit operator bool() const { return page_ != nullptr; }
  float* data() const;  // where the model computes; valid until PagePool::num_moves() changes
  std::size_t bytes() const;
  // True when nobody else holds the page: it may be written.
  bool exclusive() const { return num_refs() == 1; }
  // True when only caches hold the page.
  bool idle() const;
  std::uint32_t num_refs() const;
  PageRef share() const;
  PageRef share_with_cache() const;
  void reset();

 private:
  friend class PagePool;
  struct Page;
  PageRef(PagePool* pool, Page* page, bool cached) : pool_(pool), page_(page), cached_(cached) {}
  PagePool* pool_ = nullptr;
  Page* page_ = nullptr;
  bool cached_ = false;
};

// Pages are had one by one, 64-byte aligned, until the budget is reached. A page of one geometry
// never blocks memory for another. Every page is zero when it is acquired: contents are wiped when
// it is released, so nothing of one tenant is ever in memory that another gets, nor in freed
// memory. Owned by one thread, except for the two byte counts.
class PagePool {
 public:
  // In host memory, on demand.
  explicit PagePool(std::size_t budget_bytes)
      : PagePool(budget_bytes, std::make_shared<HostPageMemory>(budget_bytes)) {}
  // `memory` has room for pages of that many bytes in any mixture; this pool alone uses it.
  PagePool(std::size_t budget_bytes, std::shared_ptr<PageMemory> memory)
      : budget_(budget_bytes), memory_(std::move(memory)) {}
  ~PagePool();  // every page must have been released
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // kResourceExhausted when the budget (or the system) has no room.
  Result<PageRef> acquire(std::size_t page_bytes);
  Result<PageRef> acquire(const tensor::KvGeometry& geometry) {
    return acquire(kv_page_bytes(geometry));
  }

  std::size_t budget_bytes() const { return budget_; }
  std::size_t used_bytes() const { return used_.load(std::memory_order_relaxed); }  // any thread
  std::size_t free_bytes() const { return budget_ - used_bytes(); }                 // any thread
  std::size_t idle_bytes() const { return idle_bytes_; }  // of idle pages; part of used_bytes()
  std::size_t pages_in_use() const { return pages_in_use_; }
  // Rises when acquire() has moved other pages.
  std::uint64_t num_moves() const { return memory_->num_moves(); }
  // Gives free pages back to the system, and wipes what is not wiped yet.
  void release_unused() { memory_->release_unused(); }
  void copy(PageRef& to, const PageRef& from);
  // The first `positions` keys and values of a page.
  void copy_positions(const tensor::KvGeometry& geometry, PageRef& to, const PageRef& from,
                      std::int64_t positions);
  // Aborts when the books do not add up, or `expected_pages` (counted by the holders) differs.
  void check_integrity(std::size_t expected_pages) const;

 private:
  friend class PageRef;
  void add_ref(PageRef::Page* page, bool cached);
  void drop_ref(PageRef::Page* page, bool cached);
  void release(PageRef::Page* page);

  const std::size_t budget_;
  const std::shared_ptr<PageMemory> memory_;
  std::atomic<std::size_t> used_{0};
  std::size_t idle_bytes_ = 0;
  std::size_t pages_in_use_ = 0;
};

}  // namespace flotilla::state
