// Stands in for backend/cuda in builds without it.
#include "flotilla/backend/cuda/cuda_device.h"

namespace flotilla::backend {
namespace {

Error no_cuda(int device) {
  return {ErrorCode::kUnavailable, "CUDA device " + std::to_string(device) +
                                       ": this build has no CUDA (configure with FLOTILLA_CUDA)"};
}

}  // namespace

namespace cuda {
Result<CudaDeviceInfo> probe_cuda_device(int device) { return no_cuda(device); }
void release_cuda_device(int) {}
CudaDevice* cuda_device(Backend&) { return nullptr; }
}  // namespace cuda

Result<std::unique_ptr<Backend>> make_cuda_backend(int device) { return no_cuda(device); }

}  // namespace flotilla::backend
