#include "flotilla/state/page_pool.h"

#include <string>

#include "flotilla/base/check.h"

namespace flotilla::state {

struct PageRef::Page {
  PageMemory::Place* place = nullptr;
  std::uint32_t refs = 0;
  std::uint32_t cache_refs = 0;  // part of refs
  bool idle() const { return refs > 0 && refs == cache_refs; }
};

float* PageRef::data() const { return reinterpret_cast<float*>(page_->place->data); }
std::size_t PageRef::bytes() const { return page_->place->bytes; }
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
  if (page->idle() && !cached) idle_bytes_ -= page->place->bytes;
  ++page->refs;
  if (cached) ++page->cache_refs;
}

void PagePool::drop_ref(PageRef::Page* page, bool cached) {
  const bool was_idle = page->idle();
  --page->refs;
  if (cached) --page->cache_refs;
  if (was_idle && !page->idle()) idle_bytes_ -= page->place->bytes;
  if (!was_idle && page->idle()) idle_bytes_ += page->place->bytes;
  if (page->refs == 0) release(page);
}

PagePool::~PagePool() {
  FLOTILLA_CHECK(pages_in_use_ == 0, "a page outlives its pool");
  release_unused();
}

Result<PageRef> PagePool::acquire(std::size_t bytes) {
  const bool fits = bytes <= budget_ && used_bytes() <= budget_ - bytes;
  PageMemory::Place* place = fits ? memory_->allocate(bytes) : nullptr;
  if (place == nullptr) {
    return Error{ErrorCode::kResourceExhausted, "no room for a page of " + std::to_string(bytes) +
                                                    " bytes: " + std::to_string(used_bytes()) +
                                                    " of " + std::to_string(budget_) +
                                                    " bytes are in use"};
  }
  auto* page = new PageRef::Page{.place = place, .refs = 1};
  ++pages_in_use_;
  used_.fetch_add(bytes, std::memory_order_relaxed);
  return PageRef(this, page, false);
}

void PagePool::release(PageRef::Page* page) {
  --pages_in_use_;
  used_.fetch_sub(page->place->bytes, std::memory_order_relaxed);
  memory_->free(page->place);
  delete page;
}

void PagePool::copy(PageRef& to, const PageRef& from) {
  memory_->copy(*to.page_->place, *from.page_->place);
}

void PagePool::copy_positions(const tensor::KvGeometry& geometry, PageRef& to, const PageRef& from,
                              std::int64_t positions) {
  memory_->copy_positions(geometry, *to.page_->place, *from.page_->place, positions);
}

void PagePool::check_integrity(std::size_t expected_pages) const {
  memory_->check_integrity(pages_in_use_, used_bytes());
  FLOTILLA_CHECK(used_bytes() <= budget_, "more bytes in use than the budget");
  FLOTILLA_CHECK(idle_bytes_ <= used_bytes(), "more idle bytes than bytes in use");
  FLOTILLA_CHECK(pages_in_use_ == expected_pages, "pages leaked: " + std::to_string(pages_in_use_) +
                                                      " in use, " + std::to_string(expected_pages) +
                                                      " have a holder");
}

}  // namespace flotilla::state
