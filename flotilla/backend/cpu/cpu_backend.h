// The Backend of the processor. See backend.h for the contract.
#pragma once

#include <memory>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/backend/cpu/buffer_cache.h"
#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/cpu/packed_rows.h"
#include "flotilla/backend/cpu/thread_pool.h"

namespace flotilla::backend {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CpuKernels& kernels, int num_threads, bool pack_weights, bool pin_threads);

  Capabilities capabilities() const override;
  Tensor allocate(const Shape& shape, tensor::DType dtype) override;
  Result<std::unique_ptr<Matrix>> prepare(const StoredMatrix& stored) override;

  void embedding(const EmbeddingArgs& args) override;
  void linear(const LinearArgs& args) override;
  void linear_group(const LinearGroupArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void norm_add(const NormAddArgs& args) override;
  void rope(const RopeArgs& args) override;
  void gelu_mul(const GeluMulArgs& args) override;
  void softcap(const SoftcapArgs& args) override;
  void kv_append(const KvAppendArgs& args) override;
  void attention(const AttentionArgs& args) override;

 private:
  struct Product {  // one weight of a linear_group
    const WeightView* weight;
    float* out;
  };
  void run_products(std::span<const Product> products, int m);
  std::byte* scratch(int thread) { return scratch_[static_cast<std::size_t>(thread)]; }
  // body(begin, end) over [0, count) in pieces of at least `grain`, on all threads when that pays.
  template <class Body>
  void split(std::size_t count, std::size_t grain, Body&& body);

  const CpuKernels& kernels_;
  const bool pack_weights_;
  BufferCache cache_;
  ThreadPool pool_;
  std::shared_ptr<tensor::Buffer> scratch_storage_;
  std::vector<std::byte*> scratch_;  // per thread
  PackedRows packed_rows_;
  std::vector<float> angles_, sines_, cosines_;  // of the last rope()
  std::vector<AttentionItem> items_;             // of the last attention()
};

}  // namespace flotilla::backend
