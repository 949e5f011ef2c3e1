#include "device_kv.h"

#include <algorithm>
#include <cstring>
#include <variant>

#include "flotilla/backend/device_error.h"

namespace flotilla::cuda_check {
namespace {

std::shared_ptr<tensor::Buffer> allocate(backend::Backend& backend, std::size_t bytes) {
  backend::PageDevice* device = backend.page_device();
  if (device == nullptr) {  // a definition that computes on the host
    auto memory = tensor::make_host_buffer(bytes);
    std::memset(memory->data(), 0, bytes);
    return memory;
  }
  auto memory = device->allocate_pages(bytes);
  if (!memory.ok()) throw backend::DeviceError(memory.error().message);
  return std::move(memory).value();
}

// Copies `noise`, a tensor of rows of bytes on the card, over the memory again and again.
void fill(backend::Backend& backend, tensor::Buffer& memory, const backend::Tensor& noise) {
  const auto row = static_cast<std::size_t>(noise.dim(1));
  const auto rows = static_cast<std::int64_t>(memory.size() / row);
  std::vector<std::int32_t> order(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(noise.dim(0)));
  // A view of memory that the caller keeps alive.
  struct View final : tensor::Buffer {
    View(std::byte* data, std::size_t size) : Buffer(data, size) {}
  };
  const auto view = std::make_shared<View>(memory.data(), memory.size());
  backend.gather_rows({.source = noise,
                       .rows = order,
                       .out = backend::Tensor(view, 0, {rows, noise.dim(1)}, noise.dtype())});
}

}  // namespace

DevicePages::DevicePages(backend::Backend& backend, const tensor::KvGeometry& geometry, int first,
                         int num_blocks)
    : first_block(first) {
  const std::size_t bytes =
      tensor::kv_page_floats(geometry) * static_cast<std::size_t>(backend.kv_element_bytes());
  memory = allocate(backend, bytes * static_cast<std::size_t>(num_blocks));
  for (int i = 0; i < num_blocks; ++i) {
    pages.push_back(reinterpret_cast<float*>(memory->data() + static_cast<std::size_t>(i) * bytes));
  }
}

DeviceKv::DeviceKv(backend::Backend& backend, const state::StateLayout& layout, std::int64_t length,
                   std::int64_t first_position, const backend::Tensor& noise) {
  const auto blocks = (length + tensor::kKvBlock - 1) / tensor::kKvBlock;
  for (const state::LayerState& state : layout.layers) {
    tensor::KvGeometry geometry;
    std::int64_t first = 0;
    if (const auto* paged = std::get_if<state::PagedKv>(&state)) geometry = paged->geometry;
    if (const auto* window = std::get_if<state::WindowKv>(&state)) {
      geometry = window->geometry;
      first = std::max<std::int64_t>(0, first_position - window->window + 1) / tensor::kKvBlock;
    }
    Layer layer;
    if (geometry.num_kv_heads > 0) {
      DevicePages pages(backend, geometry, static_cast<int>(first),
                        static_cast<int>(blocks - first));
      layer = {pages.memory, std::move(pages.pages)};
      if (!noise.empty()) fill(backend, *layer.memory, noise);
    }
    layers_.push_back(std::move(layer));
    const std::vector<float*>& pages = layers_.back().pages;
    views_.push_back({pages.data(), static_cast<int>(first), static_cast<int>(pages.size())});
  }
}

}  // namespace flotilla::cuda_check
