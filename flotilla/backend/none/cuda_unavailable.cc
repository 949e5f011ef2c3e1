// Stands in for backend/cuda in builds without it.
#include "flotilla/backend/backend.h"

namespace flotilla::backend {

Result<std::unique_ptr<Backend>> make_cuda_backend(int device) {
  return Error{ErrorCode::kUnavailable,
               "CUDA device " + std::to_string(device) +
                   ": this build has no CUDA (configure with FLOTILLA_CUDA)"};
}

}  // namespace flotilla::backend
