// The inside of CudaBackend, shared by its source files.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "flotilla/backend/cuda/card_use.h"
#include "flotilla/backend/cuda/cuda_backend.h"
#include "flotilla/backend/cuda/cuda_step.cuh"
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device_memory.h"
#include "flotilla/backend/cuda/host_upload.h"

namespace flotilla::backend::cuda {

// Processors of the partition: two per multiprocessor. A constant of the device type.
constexpr int kProcsPerMultiprocessor = 2;

struct CudaBackend::State {
  CardUse use;  // goes last
  int device = 0;
  CudaDeviceInfo info;
  cudaStream_t stream = nullptr;
  Workspace workspace = {};
  std::shared_ptr<tensor::Buffer> partials, totals, attention_totals;
  std::shared_ptr<tensor::Buffer> choices;  // of the last argmax
  std::shared_ptr<ScratchRegion> scratch;
  std::shared_ptr<PinnedPool> pinned = std::make_shared<PinnedPool>();
  std::unique_ptr<CudaStep> step;
  std::unique_lock<std::mutex> turn = {};  // of the step, where several backends share the card
  std::unique_ptr<HostUpload> upload;      // while a model loads
  std::vector<const float*> row_key;       // pages of the rows staged last in this step
  int row_window = -1;
  const void* rows_on_card = nullptr;
  // What comes before attention, until it is known whether attention follows and does it as well.
  std::optional<KvStoreParams> inputs;

  ~State();
};

template <class Launch>
void CudaBackend::run(const char* what, Launch&& launch) {
  if (state_->inputs) store_inputs();
  if (state_->step->in_step()) {
    if (state_->step->launches()) check_cuda(launch(state_->stream), what);
    return;
  }
  const std::unique_lock turn = state_->use.turn();
  check_cuda(launch(state_->stream), what);
  if (turn) check_cuda(cudaStreamSynchronize(state_->stream), what);
}

inline Values values_of(const Tensor& t) { return {t.bytes(), t.dtype() == tensor::DType::kF32}; }

}  // namespace flotilla::backend::cuda
