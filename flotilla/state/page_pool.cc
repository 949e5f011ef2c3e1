#include "flotilla/state/page_pool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "flotilla/base/check.h"

namespace flotilla::state {

struct PageRef::Page {
  float* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t refs = 0;
  std::uint32_t cache_refs = 0;  // part of refs
  bool idle() const { return refs > 0 && refs == cache_refs; }
};

namespace {

constexpr std::size_t kAlignment = 64;

// A wipe that the compiler may not drop, even when the memory is freed next.
void wipe(void* data, std::size_t bytes) {
  std::memset(data, 0, bytes);
  asm volatile("" : : "r"(data) : "memory");
}

}  // namespace

float* PageRef::data() const { return page_->data; }
std::size_t PageRef::bytes() const { return page_->bytes; }
bool PageRef::idle() const { return page_->idle(); }
std::uint32_t PageRef::num_refs() const { return page_->refs; }

PageRef PageRef::share() const {
  pool_->add_ref(page_, false);
  return PageRef(pool_, page_, false);
}

PageRef PageRef::share_with_cache() const {
  pool_->add_ref(page_, true);
  return PageRef(pool_, page_, true);
}

void PageRef::reset() {
  if (page_ != nullptr) pool_->drop_ref(page_, cached_);
  page_ = nullptr;
  pool_ = nullptr;
  cached_ = false;
}

void PagePool::add_ref(PageRef::Page* page, bool cached) {
  if (page->idle() && !cached) idle_bytes_ -= page->bytes;
  ++page->refs;
  if (cached) ++page->cache_refs;
}

void PagePool::drop_ref(PageRef::Page* page, bool cached) {
  const bool was_idle = page->idle();
  --page->refs;
  if (cached) --page->cache_refs;
  if (was_idle && !page->idle()) idle_bytes_ -= page->bytes;
  if (!was_idle && page->idle()) idle_bytes_ += page->bytes;
  if (page->refs == 0) release(page);
}

PagePool::~PagePool() {
  FLOTILLA_CHECK(pages_in_use_ == 0, "a page outlives its pool");
  release_unused();
}

PagePool::Class& PagePool::class_of(std::size_t page_bytes) {
  for (Class& c : classes_) {
    if (c.page_bytes == page_bytes) return c;
  }
  return classes_.emplace_back(Class{.page_bytes = page_bytes});
}

void PagePool::free_page(Class& from) {
  PageRef::Page* page = from.free.back();
  from.free.pop_back();
  --from.num_pages;
  resident_ -= page->bytes;
  std::free(page->data);
  delete page;
}

Result<PageRef> PagePool::acquire(std::size_t bytes) {
  const auto exhausted = [&] {
    return Error{ErrorCode::kResourceExhausted, "no room for a page of " + std::to_string(bytes) +
                                                    " bytes: " + std::to_string(used_bytes()) +
                                                    " of " + std::to_string(budget_) +
                                                    " bytes are in use"};
  };
  if (bytes > budget_ || used_bytes() > budget_ - bytes) return exhausted();
  Class& wanted = class_of(bytes);
  PageRef::Page* page = nullptr;
  if (!wanted.free.empty()) {
    page = wanted.free.back();
    wanted.free.pop_back();
  } else {
    // The check above promises that giving back free pages makes room.
    for (Class& other : classes_) {
      while (resident_ > budget_ - bytes && !other.free.empty()) free_page(other);
    }
    auto* data = static_cast<float*>(
        std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
    if (data == nullptr) return exhausted();
    std::memset(data, 0, bytes);
    page = new PageRef::Page{.data = data, .bytes = bytes};
    resident_ += bytes;
    ++wanted.num_pages;
  }
  page->refs = 1;
  ++pages_in_use_;
  used_.fetch_add(bytes, std::memory_order_relaxed);
  return PageRef(this, page, false);
}

void PagePool::release(PageRef::Page* page) {
  wipe(page->data, page->bytes);
  --pages_in_use_;
  used_.fetch_sub(page->bytes, std::memory_order_relaxed);
  class_of(page->bytes).free.push_back(page);
}

void PagePool::release_unused() {
  for (Class& c : classes_) {
    while (!c.free.empty()) free_page(c);
  }
}

void PagePool::check_integrity(std::size_t expected_pages) const {
  std::size_t pages = 0;
  std::size_t bytes = 0;
  std::size_t used = 0;
  for (const Class& c : classes_) {
    FLOTILLA_CHECK(c.free.size() <= c.num_pages, "more free pages than pages");
    for (const PageRef::Page* page : c.free) {
      FLOTILLA_CHECK(page->refs == 0 && page->bytes == c.page_bytes, "a free page is in use");
    }
    pages += c.num_pages - c.free.size();
    bytes += c.num_pages * c.page_bytes;
    used += (c.num_pages - c.free.size()) * c.page_bytes;
  }
  FLOTILLA_CHECK(pages == pages_in_use_, "pages in use do not add up");
  FLOTILLA_CHECK(bytes == resident_ && bytes <= budget_, "page memory does not add up");
  FLOTILLA_CHECK(used == used_bytes(), "bytes in use do not add up");
  FLOTILLA_CHECK(idle_bytes_ <= used, "more idle bytes than bytes in use");
  FLOTILLA_CHECK(pages == expected_pages, "pages leaked: " + std::to_string(pages) + " in use, " +
                                              std::to_string(expected_pages) + " have a holder");
}

}  // namespace flotilla::state
