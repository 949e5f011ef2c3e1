// A stored matrix that CpuBackend has accepted, packed or as it was.
#pragma once

#include <memory>

#include "flotilla/backend/backend.h"
#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/cpu/thread_pool.h"

namespace flotilla::backend {

class CpuMatrix final : public Matrix {
 public:
  // Checks formats and shapes. kUnsupported: valid, but not for us; kInvalidArgument: shapes
  // contradict each other. `pack`: make a re-ordered copy where that helps, in which case the
  // stored tensors are let go.
  static Result<std::unique_ptr<Matrix>> make(const StoredMatrix& stored, bool pack,
                                              const CpuKernels& kernels, ThreadPool& pool);

  std::size_t resident_bytes() const override;
  const WeightView& view() const { return view_; }

 private:
  CpuMatrix(const StoredMatrix& stored, const WeightView& view);

  StoredMatrix stored_;
  WeightView view_;
  std::shared_ptr<tensor::Buffer> packed_;
};

// "affine 4-bit group 64", "bf16", ...
std::string format_name(const StoredMatrix& stored);

}  // namespace flotilla::backend
