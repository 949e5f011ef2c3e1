// The flagship's products with made-up weights, outside of any backend, and a way to time them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/cuda/relaxations/relaxed.cuh"

namespace flotilla::cuda_check {

void check(cudaError_t error);  // throws

class CardBuffer {
 public:
  explicit CardBuffer(std::size_t bytes) : bytes_(bytes) { check(cudaMalloc(&data_, bytes)); }
  ~CardBuffer() { (void)cudaFree(data_); }
  CardBuffer(const CardBuffer&) = delete;
  CardBuffer& operator=(const CardBuffer&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

struct ProductShape {
  std::string name;
  std::vector<int> n;  // matrices of one x
  int k = 0;
  int per_step = 0;  // launches in a step of the whole model
  int rows() const;
  int row_blocks() const;
  double flops(int m) const { return 2.0 * rows() * static_cast<double>(k) * m; }
};

class Products {
 public:
  static constexpr int kMostTokens = 4096;
  explicit Products(int weight_sets);
  ~Products();

  const std::vector<ProductShape>& shapes() const { return shapes_; }
  int multiprocessors() const { return multiprocessors_; }
  cudaStream_t stream() const { return stream_; }
  int usual_procs(const ProductShape& shape) const;

  struct Call {
    int shape = 0, set = 0, m = 1;
    int procs = 0;                     // 0: as the library cuts
    bool as_shipped = true;            // the kernels of the programs
    Pieces pieces = Pieces::kInOrder;  // else
    bool y_is_f32 = false;
  };
  void launch(const Call& call);
  // Outputs of the last call with y_is_f32, of the first `count` values.
  std::vector<float> outputs(std::size_t count);
  void clear_outputs();
  const device::bf16* x() const { return x_.as<device::bf16>(); }
  void* y() const { return y_.as<void>(); }

  // Seconds of `work` in a graph: the best of `repeats` replays.
  double seconds(int repeats, const std::function<void()>& work);
  // Without a graph.
  double seconds_at_once(const std::function<void()>& work);

 private:
  int multiprocessors_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<ProductShape> shapes_;
  std::vector<std::vector<std::unique_ptr<CardBuffer>>> weights_;  // [shape][set], all matrices
  CardBuffer x_, y_, partials_, totals_, counters_, loose_partials_;
};

}  // namespace flotilla::cuda_check
