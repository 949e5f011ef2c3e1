// Views of arrays and the storage behind them. No arithmetic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "flotilla/base/check.h"
#include "flotilla/tensor/dtype.h"

namespace flotilla::tensor {

// Up to five dimensions, row-major.
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);
  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t i) const { return dims_[i]; }
  std::int64_t num_elements() const;
  bool operator==(const Shape& other) const;
  std::string to_string() const;  // "[2, 3]"

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  std::size_t rank_ = 0;
};

// Owns bytes: host memory, a mapped file, device memory. Derived classes free it. Shared by the
// tensors that view it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 protected:
  Buffer(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  std::size_t size_;
};

// Host memory aligned to 64 bytes, not initialised. Large buffers ask for huge pages.
std::shared_ptr<Buffer> make_host_buffer(std::size_t bytes);

// A contiguous view. Copies share the buffer. Constness is by convention: weights are never written
// after load.
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::shared_ptr<Buffer> buffer, std::size_t offset, Shape shape, DType dtype);

  bool empty() const { return data_ == nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(std::size_t i) const { return shape_[i]; }
  DType dtype() const { return dtype_; }
  std::size_t num_bytes() const {
    return static_cast<std::size_t>(shape_.num_elements()) * dtype_bytes(dtype_);
  }
  std::byte* bytes() const { return data_; }
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(data_);
  }
  // Rows [begin, end) of the first dimension.
  Tensor rows(std::int64_t begin, std::int64_t end) const;
  // The same elements under another shape of equal size.
  Tensor reshape(Shape shape) const;
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }

 private:
  std::shared_ptr<Buffer> buffer_;
  std::byte* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

}  // namespace flotilla::tensor
