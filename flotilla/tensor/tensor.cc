#include "flotilla/tensor/tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace flotilla::tensor {
namespace {

constexpr std::size_t kHostAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

class HostBuffer final : public Buffer {
 public:
  HostBuffer(std::byte* data, std::size_t size) : Buffer(data, size) {}
  ~HostBuffer() override { std::free(data_); }
};

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(dims.size()) {
  FLOTILLA_CHECK(dims.size() <= kMaxRank, "a shape has at most five dimensions");
  std::int64_t total = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    FLOTILLA_CHECK(dims[i] >= 0, "a dimension is negative");
    FLOTILLA_CHECK(!__builtin_mul_overflow(total, dims[i], &total), "a shape is too large");
    dims_[i] = dims[i];
  }
}

std::int64_t Shape::num_elements() const {
  std::int64_t total = 1;
  for (std::size_t i = 0; i < rank_; ++i) total *= dims_[i];
  return total;
}

bool Shape::operator==(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (std::size_t i = 0; i < rank_; ++i) {
    if (dims_[i] != other.dims_[i]) return false;
  }
  return true;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (std::size_t i = 0; i < rank_; ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(dims_[i]);
  }
  return text + "]";
}

std::shared_ptr<Buffer> make_host_buffer(std::size_t bytes) {
  const bool large = bytes >= 2 * kHugePage;
  const std::size_t alignment = large ? kHugePage : kHostAlignment;
  // Never empty, so that data() of an empty tensor is still an address.
  const std::size_t rounded = (bytes + alignment) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (large) (void)madvise(data, rounded, MADV_HUGEPAGE);  // only advice: failure changes nothing
#endif
  return std::make_shared<HostBuffer>(static_cast<std::byte*>(data), bytes);
}

Tensor::Tensor(std::shared_ptr<Buffer> buffer, std::size_t offset, Shape shape, DType dtype)
    : buffer_(std::move(buffer)), shape_(shape), dtype_(dtype) {
  FLOTILLA_CHECK(buffer_ != nullptr, "a tensor needs a buffer");
  FLOTILLA_CHECK(offset <= buffer_->size() && num_bytes() <= buffer_->size() - offset,
                 "a tensor reaches beyond its buffer");
  data_ = buffer_->data() + offset;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  FLOTILLA_CHECK(shape_.rank() >= 1 && begin >= 0 && begin <= end && end <= shape_[0],
                 "rows() outside of the first dimension");
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  std::size_t row_bytes = dtype_bytes(dtype_);
  for (std::size_t i = 0; i < shape_.rank(); ++i) {
    dims[i] = shape_[i];
    if (i > 0) row_bytes *= static_cast<std::size_t>(shape_[i]);
  }
  dims[0] = end - begin;
  Tensor out = *this;
  out.shape_ = Shape(std::span<const std::int64_t>(dims.data(), shape_.rank()));
  if (out.data_ != nullptr) out.data_ += static_cast<std::size_t>(begin) * row_bytes;
  return out;
}

Tensor Tensor::reshape(Shape shape) const {
  FLOTILLA_CHECK(shape.num_elements() == shape_.num_elements(),
                 "reshape() to another number of elements");
  Tensor out = *this;
  out.shape_ = shape;
  return out;
}

}  // namespace flotilla::tensor
