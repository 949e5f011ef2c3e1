// Where the pages of a pool live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "flotilla/state/page_range.h"
#include "flotilla/tensor/kv_layout.h"

namespace flotilla::state {

// Not thread-safe: one caller at a time.
class PageMemory {
 public:
  // The address of a place may change when another one is allocated; num_moves() tells.
  struct Place {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  virtual ~PageMemory() = default;
  // 64-byte aligned and zero; null when there is no room. The place is owned by this object.
  virtual Place* allocate(std::size_t bytes) = 0;
  // Wipes it: at once, or before anything else can see the memory.
  virtual void free(Place* place) = 0;
  virtual void copy(Place& to, const Place& from) = 0;  // of equal size
  // The first `positions` keys and values of a page; the rest of `to` stays as it is.
  virtual void copy_positions(const tensor::KvGeometry& geometry, Place& to, const Place& from,
                              std::int64_t positions) = 0;
  virtual std::uint64_t num_moves() const { return 0; }
  // Gives what is free back to the system, where that is possible.
  virtual void release_unused() {}
  // Aborts when the books do not add up, or other sizes are in use.
  virtual void check_integrity(std::size_t num_places, std::size_t bytes) const = 0;
};

// Host memory, allocated place by place on demand, in huge pages where the system has them. Free
// places are kept for their size, and given back to the system when `budget` bytes would be passed.
class HostPageMemory final : public PageMemory {
 public:
  explicit HostPageMemory(std::size_t budget) : budget_(budget) {}
  ~HostPageMemory() override;  // everything must have been freed
  HostPageMemory(const HostPageMemory&) = delete;
  HostPageMemory& operator=(const HostPageMemory&) = delete;

  Place* allocate(std::size_t bytes) override;
  void free(Place* place) override;
  void copy(Place& to, const Place& from) override;
  void copy_positions(const tensor::KvGeometry& geometry, Place& to, const Place& from,
                      std::int64_t positions) override;
  void release_unused() override;
  void check_integrity(std::size_t num_places, std::size_t bytes) const override;

 private:
  struct Class {
    std::size_t bytes = 0;
    std::unique_ptr<PageRange> range = {};
    std::vector<Place*> free = {};
    std::size_t num_places = 0;  // in use and free
  };
  Class& class_of(std::size_t bytes);
  void give_back(Class& from);

  const std::size_t budget_;
  std::size_t resident_ = 0;    // bytes of all places, free ones included
  std::vector<Class> classes_;  // one per size
};

}  // namespace flotilla::state
