// Where the pages of one size come from: one range of addresses, huge pages where the system gives
// them. Pages that are given back leave the process at once.
#pragma once

#include <cstddef>
#include <set>

namespace flotilla::state {

// Used by one thread.
class PageRange {
 public:
  // Reserves addresses for `max_bytes`; memory is taken page by page. Small pages, and systems that
  // do not reserve, are served by the allocator.
  PageRange(std::size_t page_bytes, std::size_t max_bytes);
  ~PageRange();  // every page must have been given back
  PageRange(const PageRange&) = delete;
  PageRange& operator=(const PageRange&) = delete;

  float* take();  // zero, 64-byte aligned; nullptr when there is no memory
  void give_back(float* page);
  bool has_range() const { return begin_ != nullptr; }

 private:
  const std::size_t page_bytes_;
  std::byte* begin_ = nullptr;  // of the range; null: the allocator serves
  std::size_t range_bytes_ = 0;
  std::size_t used_ = 0;           // bytes from begin_ that were taken at some time
  std::set<std::byte*> returned_;  // below that; the lowest is taken first, so huge pages fill up
};

}  // namespace flotilla::state
