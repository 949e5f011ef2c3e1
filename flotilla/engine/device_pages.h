// Pages of sequences in the memory of a device.
#pragma once

#include <memory>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/state/layer_state.h"
#include "flotilla/state/page_arena.h"

namespace flotilla::engine {

// Belongs to the engine's thread, as the device does, which must outlive it. Wipes its memory when
// it goes.
class DevicePages final : public state::PageArena {
 public:
  // Room for `usable` bytes of pages of `layout`. kResourceExhausted when the device has less.
  static Result<std::shared_ptr<DevicePages>> make(backend::PageDevice& device,
                                                   const state::StateLayout& layout,
                                                   std::size_t usable);
  // What make() can have of `bytes` of the device's memory.
  static std::size_t usable_of(std::size_t bytes, const state::StateLayout& layout);
  ~DevicePages() override;

  void copy(Place& to, const Place& from) override;
  void copy_positions(const tensor::KvGeometry& geometry, Place& to, const Place& from,
                      std::int64_t positions) override;

 protected:
  void wipe(std::span<std::byte* const> places, std::size_t bytes) override;
  void move(std::byte* to, const std::byte* from, std::size_t bytes) override;

 private:
  DevicePages(backend::PageDevice& device, std::shared_ptr<tensor::Buffer> memory,
              std::vector<std::size_t> sizes);
  backend::PageDevice& device_;
  const std::shared_ptr<tensor::Buffer> memory_;
};

}  // namespace flotilla::engine
