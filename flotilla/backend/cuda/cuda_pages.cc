// Pages of key-value state in the memory of the card.
#include <algorithm>

#include "flotilla/backend/cuda/cuda_state.cuh"

namespace flotilla::backend::cuda {

std::uint64_t CudaBackend::free_bytes() {
  bind();
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

Result<std::shared_ptr<tensor::Buffer>> CudaBackend::allocate_pages(std::size_t bytes) {
  bind();
  FLOTILLA_TRY(auto buffer, make_device_buffer(bytes));
  check_cuda(cudaMemsetAsync(buffer->data(), 0, bytes, state_->stream), "zeroing pages");
  return buffer;
}

void CudaBackend::zero_pages(std::span<std::byte* const> pages, std::size_t bytes) {
  bind();
  constexpr std::size_t kAtOnce = std::size_t{1} << 20;  // addresses that are staged together
  while (!pages.empty()) {
    const auto part = pages.first(std::min(pages.size(), kAtOnce));
    const void* table = state_->step->stage(part.data(), part.size_bytes());
    check_cuda(cuda::zero_pages(static_cast<std::byte* const*>(table),
                                static_cast<int>(part.size()), bytes, state_->stream),
               "zeroing pages");
    pages = pages.subspan(part.size());
  }
}

void CudaBackend::copy_page(std::byte* to, const std::byte* from, std::size_t bytes) {
  bind();
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_->stream),
             "copying a page");
}

// For each head K as [32][head_dim], then V as [head_dim][32].
void CudaBackend::copy_positions(const KvGeometry& geometry, std::byte* to, const std::byte* from,
                                 std::int64_t positions) {
  const auto element = static_cast<std::size_t>(geometry.element_bytes);
  const auto dim = static_cast<std::size_t>(geometry.head_dim);
  const auto count = static_cast<std::size_t>(positions);
  const std::size_t half = dim * tensor::kKvBlock * element;
  const std::size_t pitch = tensor::kKvBlock * element;
  for (int head = 0; head < geometry.num_kv_heads; ++head, to += 2 * half, from += 2 * half) {
    copy_page(to, from, count * dim * element);
    check_cuda(cudaMemcpy2DAsync(to + half, pitch, from + half, pitch, count * element, dim,
                                 cudaMemcpyDeviceToDevice, state_->stream),
               "copying a page");
  }
}

}  // namespace flotilla::backend::cuda
