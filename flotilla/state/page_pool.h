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

// A counted reference to a page. Move-only; share() makes another.
class PageRef {
 public:
  PageRef() = default;
  PageRef(PageRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), page_(std::exchange(other.page_, nullptr)) {}
  PageRef& operator=(PageRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(page_, other.page_);
    return *this;
  }
  ~PageRef() { reset(); }

  explicit operator bool() const { return page_ != nullptr; }
  float* data() const;
  // True when nobody else holds the page: it may be written.
  bool exclusive() const;
  PageRef share() const;
  void reset();

 private:
  friend class PagePool;
  struct Page;
  PageRef(PagePool* pool, Page* page) : pool_(pool), page_(page) {}
  PagePool* pool_ = nullptr;
  Page* page_ = nullptr;
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
  Result<PageRef> acquire(const tensor::KvGeometry& geometry);

  std::size_t budget_bytes() const { return budget_; }
  std::size_t used_bytes() const { return used_.load(std::memory_order_relaxed); }  // any thread
  std::size_t free_bytes() const { return budget_ - used_bytes(); }                 // any thread
  std::size_t pages_in_use() const { return pages_in_use_; }
  // Gives free pages back to the system.
  void release_unused();
  // Aborts when the books do not add up, or `expected_pages` (a count made elsewhere) differs.
  void check_integrity(std::size_t expected_pages) const;

 private:
  friend class PageRef;
  struct Class {
    std::size_t page_bytes = 0;
    std::vector<PageRef::Page*> free = {};
    std::size_t num_pages = 0;  // in use and free
  };
  void release(PageRef::Page* page);
  void free_page(Class& from);
  Class& class_of(std::size_t page_bytes);

  const std::size_t budget_;
  std::size_t resident_ = 0;  // bytes of all pages, free ones included; at most budget_
  std::atomic<std::size_t> used_{0};
  std::size_t pages_in_use_ = 0;
  std::vector<Class> classes_;  // one per page size: geometries of equal size share
};

}  // namespace flotilla::state
