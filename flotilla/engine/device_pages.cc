#include "flotilla/engine/device_pages.h"

#include <algorithm>
#include <utility>

#include "flotilla/backend/device_error.h"
#include "flotilla/log/log.h"

namespace flotilla::engine {
namespace {

std::vector<std::size_t> page_sizes(const state::StateLayout& layout) {
  std::vector<std::size_t> sizes;
  for (const state::LayerState& layer : layout.layers) {
    const std::size_t bytes = state::page_bytes(layer);
    if (bytes > 0 && std::find(sizes.begin(), sizes.end(), bytes) == sizes.end()) {
      sizes.push_back(bytes);
    }
  }
  return sizes;
}

}  // namespace

std::size_t DevicePages::usable_of(std::size_t bytes, const state::StateLayout& layout) {
  return usable_bytes(bytes, page_sizes(layout));
}

Result<std::shared_ptr<DevicePages>> DevicePages::make(backend::PageDevice& device,
                                                       const state::StateLayout& layout,
                                                       std::size_t usable) {
  std::vector<std::size_t> sizes = page_sizes(layout);
  FLOTILLA_TRY(auto memory, device.allocate_pages(region_for(usable, sizes)));
  return std::shared_ptr<DevicePages>(new DevicePages(device, std::move(memory), std::move(sizes)));
}

DevicePages::DevicePages(backend::PageDevice& device, std::shared_ptr<tensor::Buffer> memory,
                         std::vector<std::size_t> sizes)
    : PageArena(memory->data(), memory->size(), std::move(sizes)),
      device_(device),
      memory_(std::move(memory)) {}

DevicePages::~DevicePages() { release_unused(); }

void DevicePages::copy(Place& to, const Place& from) {
  device_.copy_page(to.data, from.data, from.bytes);
}

void DevicePages::copy_positions(const tensor::KvGeometry& geometry, Place& to, const Place& from,
                                 std::int64_t positions) {
  device_.copy_positions(geometry, to.data, from.data, positions);
}

void DevicePages::wipe(std::span<std::byte* const> places, std::size_t bytes) {
  try {
    device_.zero_pages(places, bytes);
  } catch (const backend::DeviceError& error) {
    // What a lost device holds cannot be wiped, nor read by anybody. The next step fails.
    if (!error.lost()) throw;
    log::warn("pages_not_wiped", {{"what", error.what()}});
  }
}

void DevicePages::move(std::byte* to, const std::byte* from, std::size_t bytes) {
  device_.copy_page(to, from, bytes);
}

}  // namespace flotilla::engine
