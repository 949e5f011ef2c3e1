// cuBLASLt, looked up at run time: products of bf16 by the best of its algorithms.
#pragma once

#include <memory>
#include <string>

#include "flotilla/base/result.h"

namespace flotilla::cuda_check {

class CublasLt {
 public:
  virtual ~CublasLt() = default;
  virtual std::string where() const = 0;
  // y [m][n] = x [m][k] * w [n][k]^T, all bf16. Times every algorithm that the library suggests and
  // keeps the fastest; -1: none. The number of those tried otherwise.
  virtual int choose(const void* w, const void* x, void* y, int n, int k, int m, void* stream) = 0;
  // The product that was chosen for; false: an error.
  virtual bool run(void* stream) = 0;
};
// `path` empty: where the loader finds it. kUnavailable: it is not there.
Result<std::unique_ptr<CublasLt>> open_cublas_lt(const std::string& path);

}  // namespace flotilla::cuda_check
