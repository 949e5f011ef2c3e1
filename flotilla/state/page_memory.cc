#include "flotilla/state/page_memory.h"

#include <cstring>

#include "flotilla/base/check.h"
#include "flotilla/base/secure_zero.h"

namespace flotilla::state {

HostPageMemory::~HostPageMemory() {
  release_unused();
  FLOTILLA_CHECK(resident_ == 0, "a page outlives its memory");
}

HostPageMemory::Class& HostPageMemory::class_of(std::size_t bytes) {
  for (Class& c : classes_) {
    if (c.bytes == bytes) return c;
  }
  return classes_.emplace_back(
      Class{.bytes = bytes, .range = std::make_unique<PageRange>(bytes, budget_)});
}

void HostPageMemory::give_back(Class& from) {
  Place* place = from.free.back();
  from.free.pop_back();
  --from.num_places;
  resident_ -= place->bytes;
  from.range->give_back(reinterpret_cast<float*>(place->data));
  delete place;
}

PageMemory::Place* HostPageMemory::allocate(std::size_t bytes) {
  if (bytes > budget_) return nullptr;
  Class& wanted = class_of(bytes);
  if (!wanted.free.empty()) {
    Place* place = wanted.free.back();
    wanted.free.pop_back();
    return place;
  }
  for (Class& other : classes_) {
    while (resident_ > budget_ - bytes && !other.free.empty()) give_back(other);
  }
  if (resident_ > budget_ - bytes) return nullptr;
  auto* data = reinterpret_cast<std::byte*>(wanted.range->take());
  if (data == nullptr) return nullptr;
  resident_ += bytes;
  ++wanted.num_places;
  return new Place{.data = data, .bytes = bytes};
}

void HostPageMemory::free(Place* place) {
  secure_zero(place->data, place->bytes);
  class_of(place->bytes).free.push_back(place);
}

void HostPageMemory::copy(Place& to, const Place& from) {
  FLOTILLA_CHECK(to.bytes == from.bytes, "pages of different sizes");
  std::memcpy(to.data, from.data, from.bytes);
}

void HostPageMemory::copy_positions(const tensor::KvGeometry& geometry, Place& to_place,
                                    const Place& from_place, std::int64_t positions) {
  FLOTILLA_CHECK(geometry.element_bytes == sizeof(float), "pages in host memory are float32");
  const auto* from = reinterpret_cast<const float*>(from_place.data);
  auto* to = reinterpret_cast<float*>(to_place.data);
  const auto keys = static_cast<std::size_t>(positions);
  const auto dim = static_cast<std::size_t>(geometry.head_dim);
  for (int head = 0; head < geometry.num_kv_heads; ++head) {
    const std::size_t k = kv_k_offset(geometry, head);
    for (std::size_t d = 0; d < dim; ++d) {
      std::memcpy(to + k + d * tensor::kKvBlock, from + k + d * tensor::kKvBlock,
                  keys * sizeof(float));
    }
    const std::size_t v = kv_v_offset(geometry, head);
    std::memcpy(to + v, from + v, keys * dim * sizeof(float));
  }
}

void HostPageMemory::release_unused() {
  for (Class& c : classes_) {
    while (!c.free.empty()) give_back(c);
  }
}

void HostPageMemory::check_integrity(std::size_t num_places, std::size_t bytes) const {
  std::size_t places = 0;
  std::size_t used = 0;
  std::size_t resident = 0;
  for (const Class& c : classes_) {
    FLOTILLA_CHECK(c.free.size() <= c.num_places, "more free pages than pages");
    places += c.num_places - c.free.size();
    used += (c.num_places - c.free.size()) * c.bytes;
    resident += c.num_places * c.bytes;
  }
  FLOTILLA_CHECK(places == num_places && used == bytes, "pages in use do not add up");
  FLOTILLA_CHECK(resident == resident_ && resident <= budget_, "page memory does not add up");
}

}  // namespace flotilla::state
