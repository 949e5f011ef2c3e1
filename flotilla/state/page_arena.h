// Pages of several sizes cut from one region that was allocated beforehand, such as the memory of a
// device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "flotilla/state/page_memory.h"

namespace flotilla::state {

// The region is cut into slabs of equal size; a slab holds places of one size at a time. When a
// size finds no free slab although enough is free in all, the places of the emptiest slab of some
// size are moved together. So usable_bytes() can always be used to the end, in any mixture.
//
// What was freed is wiped before the next place is handed out, all at once.
class PageArena : public PageMemory {
 public:
  static constexpr std::size_t kPlacesPerSlab = 64;  // of the largest size

  // `sizes`: all that will be asked for.
  PageArena(std::byte* base, std::size_t bytes, std::vector<std::size_t> sizes);
  ~PageArena() override;
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // Bytes of places that fit whatever their mixture. 0 when the region is too small to be of use.
  std::size_t usable_bytes() const;
  static std::size_t usable_bytes(std::size_t region, std::span<const std::size_t> sizes);
  // Of a region with that many usable bytes.
  static std::size_t region_for(std::size_t usable, std::span<const std::size_t> sizes);

  Place* allocate(std::size_t bytes) override;
  void free(Place* place) override;
  std::uint64_t num_moves() const override { return num_moves_; }
  // Wipes what was freed.
  void release_unused() override { wipe_freed(); }
  void check_integrity(std::size_t num_places, std::size_t bytes) const override;

 protected:
  // All of `bytes`; work on the region happens in the order of these calls and those of copy().
  virtual void wipe(std::span<std::byte* const> places, std::size_t bytes) = 0;
  virtual void move(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

 private:
  struct Entry : Place {
    std::size_t slab = 0, index = 0;
  };
  struct Slab {
    std::size_t place_bytes = 0;  // 0: free
    std::vector<std::unique_ptr<Entry>> places = {};
    std::vector<std::size_t> free = {};  // indices

    std::size_t num_used() const { return places.size() - free.size(); }
  };
  static std::size_t slab_bytes_for(std::span<const std::size_t> sizes);
  std::byte* address(std::size_t slab, std::size_t index) const;
  Entry* take(std::size_t slab, std::unique_ptr<Entry> entry);
  std::unique_ptr<Entry> remove(std::size_t slab, std::size_t index);
  bool compact();
  void wipe_freed();

  std::byte* const base_;
  const std::vector<std::size_t> sizes_;
  const std::size_t slab_bytes_;
  std::vector<Slab> slabs_;
  std::vector<std::size_t> free_slabs_;
  std::map<std::size_t, std::set<std::size_t>> open_;     // by size: slabs with a free place
  std::map<std::size_t, std::vector<std::byte*>> freed_;  // by size: not wiped yet
  std::uint64_t num_moves_ = 0;
};

}  // namespace flotilla::state
