// Memory for key-value pages: a byte budget shared by pages of different geometries.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "flotilla/base/result.h"
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
  float* data() const;
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

// Pages are allocated one by one, on demand, 64-byte aligned, until the budget is reached. A page
// of one geometry never blocks memory for another: free pages of other geometries are given back
// to the system when the budget asks for it. Every page is zero when it is acquired: contents are
// wiped at release, so nothing of one tenant is ever in memory that another gets, nor in freed
// memory. Owned by one thread, except for the two byte counts.
class PagePool {
 public:
  explicit PagePool(std::size_t budget_bytes) : budget_(budget_bytes) {}
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
  // Gives free pages back to the system.
  void release_unused();
  // Aborts when the books do not add up, or `expected_pages` (counted by the holders) differs.
  void check_integrity(std::size_t expected_pages) const;

 private:
  friend class PageRef;
  struct Class {
    std::size_t page_bytes = 0;
    std::vector<PageRef::Page*> free = {};
    std::size_t num_pages = 0;  // in use and free
  };
  void add_ref(PageRef::Page* page, bool cached);
  void drop_ref(PageRef::Page* page, bool cached);
  void release(PageRef::Page* page);
  void free_page(Class& from);
  Class& class_of(std::size_t page_bytes);

  const std::size_t budget_;
  std::size_t resident_ = 0;  // bytes of all pages, free ones included; at most budget_
  std::atomic<std::size_t> used_{0};
  std::size_t idle_bytes_ = 0;
  std::size_t pages_in_use_ = 0;
  std::vector<Class> classes_;  // one per page size: geometries of equal size share
};

}  // namespace flotilla::state
