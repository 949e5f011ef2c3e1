// Made-up inputs that are the same everywhere and for ever: for the numerics id, stress runs, tests
// and benches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/backend/backend.h"

namespace flotilla::backend {

// A splitmix64 sequence; integers and exact float operations only.
class FixedRandom {
 public:
  explicit FixedRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // Roughly normal, mean 0, variance 1.
  float normal();
  // [0, limit)
  std::uint32_t below(std::uint32_t limit);

 private:
  std::uint64_t state_;
};

// Normal values; every 128th is twenty times as large, as activations have outliers.
Tensor fixed_activations(const Shape& shape, std::uint64_t seed);

struct MatrixKind {
  WeightFormat format = WeightFormat::kAffine;
  int bits = 0;
  int group_size = 0;
  tensor::DType scale_type = tensor::DType::kBF16;  // affine only
};
// Every format of the contract, each with every group size and type of scale.
std::vector<MatrixKind> all_matrix_kinds();
std::string matrix_kind_name(const MatrixKind& kind);
// As a quantiser leaves them: scales of either sign that cover some two standard deviations of 1 /
// sqrt(k).
StoredMatrix fixed_matrix(const MatrixKind& kind, std::int64_t n, std::int64_t k,
                          std::uint64_t seed);

// Pages of one sequence with made-up keys and values at positions [32 * first_block, 32 *
// (first_block + num_blocks)).
class FixedKv {
 public:
  FixedKv(const KvGeometry& geometry, int first_block, int num_blocks, std::uint64_t seed);
  const Tensor& storage() const { return storage_; }  // one row per page
  KvView view() const { return {pages_.data(), first_block_, static_cast<int>(pages_.size())}; }

 private:
  Tensor storage_;
  std::vector<float*> pages_;
  int first_block_;
};

}  // namespace flotilla::backend
