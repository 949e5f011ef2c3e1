#include "flotilla/state/page_arena.h"

#include <algorithm>
#include <utility>

#include "flotilla/base/check.h"

namespace flotilla::state {

std::size_t PageArena::slab_bytes_for(std::span<const std::size_t> sizes) {
  return sizes.empty() ? 0 : kPlacesPerSlab * *std::max_element(sizes.begin(), sizes.end());
}

std::size_t PageArena::usable_bytes(std::size_t region, std::span<const std::size_t> sizes) {
  const std::size_t slab = slab_bytes_for(sizes);
  if (slab == 0 || region / slab <= sizes.size()) return 0;
  std::size_t least = slab;  // bytes of a slab that its places fill
  for (const std::size_t size : sizes) least = std::min(least, slab / size * size);
  // Each size may leave one slab almost empty.
  return (region / slab - sizes.size()) * least;
}

std::size_t PageArena::region_for(std::size_t usable, std::span<const std::size_t> sizes) {
  const std::size_t slab = slab_bytes_for(sizes);
  if (slab == 0) return 0;
  std::size_t least = slab;
  for (const std::size_t size : sizes) least = std::min(least, slab / size * size);
  return ((usable + least - 1) / least + sizes.size()) * slab;
}

PageArena::PageArena(std::byte* base, std::size_t bytes, std::vector<std::size_t> sizes)
    : base_(base), sizes_(std::move(sizes)), slab_bytes_(slab_bytes_for(sizes_)) {
  if (slab_bytes_ == 0) return;
  slabs_.resize(bytes / slab_bytes_);
  for (std::size_t i = slabs_.size(); i > 0; --i) free_slabs_.push_back(i - 1);
}

PageArena::~PageArena() = default;

std::size_t PageArena::usable_bytes() const {
  return usable_bytes(slabs_.size() * slab_bytes_, sizes_);
}

std::byte* PageArena::address(std::size_t slab, std::size_t index) const {
  return base_ + slab * slab_bytes_ + index * slabs_[slab].place_bytes;
}

PageArena::Entry* PageArena::take(std::size_t number, std::unique_ptr<Entry> entry) {
  Slab& slab = slabs_[number];
  entry->slab = number;
  entry->index = slab.free.back();
  entry->bytes = slab.place_bytes;
  entry->data = address(number, entry->index);
  slab.free.pop_back();
  if (slab.free.empty()) open_[slab.place_bytes].erase(number);
  Entry* out = entry.get();
  slab.places[out->index] = std::move(entry);
  return out;
}

std::unique_ptr<PageArena::Entry> PageArena::remove(std::size_t number, std::size_t index) {
  Slab& slab = slabs_[number];
  std::unique_ptr<Entry> entry = std::move(slab.places[index]);
  slab.free.push_back(index);
  if (slab.num_used() > 0) {
    open_[slab.place_bytes].insert(number);
  } else {
    open_[slab.place_bytes].erase(number);
    slab = {};
    free_slabs_.push_back(number);
  }
  return entry;
}

PageMemory::Place* PageArena::allocate(std::size_t bytes) {
  FLOTILLA_CHECK(std::find(sizes_.begin(), sizes_.end(), bytes) != sizes_.end(),
                 "a page of a size that was not announced");
  wipe_freed();
  std::set<std::size_t>& open = open_[bytes];
  if (open.empty()) {
    if (free_slabs_.empty() && !compact()) return nullptr;
    const std::size_t number = free_slabs_.back();
    free_slabs_.pop_back();
    Slab& slab = slabs_[number];
    slab.place_bytes = bytes;
    slab.places.resize(slab_bytes_ / bytes);
    for (std::size_t i = slab.places.size(); i > 0; --i) slab.free.push_back(i - 1);
    open.insert(number);
  }
  return take(*open.begin(), std::make_unique<Entry>());
}

void PageArena::free(Place* place) {
  const auto& entry = static_cast<const Entry&>(*place);
  freed_[entry.bytes].push_back(entry.data);
  remove(entry.slab, entry.index);
}

// Empties one slab. There is one that can be emptied when places of any size as large as what
// usable_bytes() leaves are wanted.
bool PageArena::compact() {
  for (auto& [size, open] : open_) {
    std::size_t num_free = 0;
    std::size_t emptiest = slabs_.size();
    for (const std::size_t number : open) {
      num_free += slabs_[number].free.size();
      if (emptiest == slabs_.size() || slabs_[number].num_used() < slabs_[emptiest].num_used()) {
        emptiest = number;
      }
    }
    if (num_free < slab_bytes_ / size) continue;
    open.erase(emptiest);  // nothing moves within it
    std::vector<std::byte*> left;
    Slab& from = slabs_[emptiest];
    for (std::size_t i = 0; i < from.places.size(); ++i) {
      if (from.places[i] == nullptr) continue;
      std::byte* const old = from.places[i]->data;
      const Entry* moved = take(*open.begin(), std::move(from.places[i]));
      move(moved->data, old, size);
      left.push_back(old);
    }
    wipe(left, size);
    from = {};
    free_slabs_.push_back(emptiest);
    ++num_moves_;
    return true;
  }
  return false;
}

void PageArena::wipe_freed() {
  for (auto& [size, places] : freed_) {
    if (!places.empty()) wipe(places, size);
    places.clear();
  }
}

void PageArena::check_integrity(std::size_t num_places, std::size_t bytes) const {
  std::size_t places = 0, used = 0, free_slabs = 0;
  for (std::size_t number = 0; number < slabs_.size(); ++number) {
    const Slab& slab = slabs_[number];
    if (slab.place_bytes == 0) {
      ++free_slabs;
      continue;
    }
    const auto open = open_.find(slab.place_bytes);
    FLOTILLA_CHECK(slab.num_used() > 0, "an empty slab is not free");
    FLOTILLA_CHECK(slab.free.empty() == (open == open_.end() || !open->second.contains(number)),
                   "a slab with room is lost");
    for (std::size_t i = 0; i < slab.places.size(); ++i) {
      const Entry* entry = slab.places[i].get();
      if (entry == nullptr) continue;
      FLOTILLA_CHECK(entry->data == address(number, i), "a page is not where it should be");
      ++places;
      used += entry->bytes;
    }
  }
  FLOTILLA_CHECK(free_slabs == free_slabs_.size(), "free slabs do not add up");
  FLOTILLA_CHECK(places == num_places && used == bytes, "pages in use do not add up");
}

}  // namespace flotilla::state
