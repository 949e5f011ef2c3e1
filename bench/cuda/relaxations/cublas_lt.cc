#include "bench/cuda/relaxations/cublas_lt.h"

#include <dlfcn.h>

#include <vector>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace flotilla::cuda_check {
namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;

class Opened final : public CublasLt {
 public:
  Opened(void* library, std::string where) : library_(library), where_(std::move(where)) {}
  ~Opened() override {
    forget();
    if (workspace_ != nullptr) (void)cudaFree(workspace_);
    if (handle_ != nullptr) (void)destroy_(handle_);
    // The library stays: it may have registered what runs at exit.
  }

  bool init() {
    return find("cublasLtCreate", create_) && find("cublasLtDestroy", destroy_) &&
           find("cublasLtMatmul", matmul_) && find("cublasLtMatmulAlgoGetHeuristic", heuristic_) &&
           find("cublasLtMatmulDescCreate", desc_create_) &&
           find("cublasLtMatmulDescDestroy", desc_destroy_) &&
           find("cublasLtMatmulDescSetAttribute", desc_set_) &&
           find("cublasLtMatrixLayoutCreate", layout_create_) &&
           find("cublasLtMatrixLayoutDestroy", layout_destroy_) &&
           find("cublasLtMatmulPreferenceCreate", preference_create_) &&
           find("cublasLtMatmulPreferenceDestroy", preference_destroy_) &&
           find("cublasLtMatmulPreferenceSetAttribute", preference_set_) &&
           create_(&handle_) == CUBLAS_STATUS_SUCCESS &&
           cudaMalloc(&workspace_, kWorkspace) == cudaSuccess;
  }

  std::string where() const override { return where_; }

  int choose(const void* w, const void* x, void* y, int n, int k, int m, void* stream) override {
    forget();
    w_ = w, x_ = x, y_ = y;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto un = static_cast<std::uint64_t>(n), uk = static_cast<std::uint64_t>(k),
               um = static_cast<std::uint64_t>(m);
    // Matrices in its sense are column by column: ours are transposed.
    if (desc_create_(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
        desc_set_(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)) !=
            CUBLAS_STATUS_SUCCESS ||
        layout_create_(&a_, CUDA_R_16BF, uk, un, k) != CUBLAS_STATUS_SUCCESS ||
        layout_create_(&b_, CUDA_R_16BF, uk, um, k) != CUBLAS_STATUS_SUCCESS ||
        layout_create_(&d_, CUDA_R_16BF, un, um, n) != CUBLAS_STATUS_SUCCESS)
      return -1;
    cublasLtMatmulPreference_t preference = nullptr;
    if (preference_create_(&preference) != CUBLAS_STATUS_SUCCESS) return -1;
    std::vector<cublasLtMatmulHeuristicResult_t> found(32);
    int count = 0;
    const bool searched =
        preference_set_(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                        sizeof(kWorkspace)) == CUBLAS_STATUS_SUCCESS &&
        heuristic_(handle_, desc_, a_, b_, d_, d_, preference, static_cast<int>(found.size()),
                   found.data(), &count) == CUBLAS_STATUS_SUCCESS;
    (void)preference_destroy_(preference);
    if (!searched) return -1;
    float best = 1e30f;
    for (int i = 0; i < count; ++i) {
      const auto& candidate = found[static_cast<std::size_t>(i)];
      if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
      algorithm_ = candidate.algo;
      const float time = milliseconds(static_cast<cudaStream_t>(stream));
      if (time < best) best = time, fastest_ = candidate.algo;
    }
    algorithm_ = fastest_;
    return best < 1e30f ? count : -1;
  }

  bool run(void* stream) override {
    const float one = 1.0f, zero = 0.0f;
    return matmul_(handle_, desc_, &one, w_, a_, x_, b_, &zero, y_, d_, y_, d_, &algorithm_,
                   workspace_, kWorkspace,
                   static_cast<cudaStream_t>(stream)) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  template <class Function>
  bool find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }
  // Of three products after one.
  float milliseconds(cudaStream_t stream) {
    cudaEvent_t begin = nullptr, end = nullptr;
    (void)cudaEventCreate(&begin);
    (void)cudaEventCreate(&end);
    bool good = run(stream);
    (void)cudaEventRecord(begin, stream);
    for (int i = 0; i < 3; ++i) good = run(stream) && good;
    (void)cudaEventRecord(end, stream);
    float time = 1e30f;
    if (cudaEventSynchronize(end) != cudaSuccess || !good ||
        cudaEventElapsedTime(&time, begin, end) != cudaSuccess)
      time = 1e30f;
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    return time;
  }
  void forget() {
    for (cublasLtMatrixLayout_t* layout : {&a_, &b_, &d_}) {
      if (*layout != nullptr) (void)layout_destroy_(*layout);
      *layout = nullptr;
    }
    if (desc_ != nullptr) (void)desc_destroy_(desc_);
    desc_ = nullptr;
  }

  void* library_;
  std::string where_;
  decltype(&cublasLtCreate) create_ = nullptr;
  decltype(&cublasLtDestroy) destroy_ = nullptr;
  decltype(&cublasLtMatmul) matmul_ = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic_ = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create_ = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy_ = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_ = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create_ = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy_ = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create_ = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy_ = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {}, fastest_ = {};
  const void* w_ = nullptr;
  const void* x_ = nullptr;
  void* y_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<CublasLt>> open_cublas_lt(const std::string& path) {
  std::vector<std::string> names = {"libcublasLt.so.13", "libcublasLt.so",
                                    "/usr/local/cuda/lib64/libcublasLt.so.13"};
  if (!path.empty()) names = {path};
  for (const std::string& name : names) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    auto opened = std::make_unique<Opened>(library, name);
    if (!opened->init()) return Error{ErrorCode::kUnavailable, name + " could not be used"};
    return std::unique_ptr<CublasLt>(std::move(opened));
  }
  return Error{ErrorCode::kUnavailable, "no libcublasLt.so.13 was found (--cublas-lt names one)"};
}

}  // namespace flotilla::cuda_check

#else

namespace flotilla::cuda_check {

Result<std::unique_ptr<CublasLt>> open_cublas_lt(const std::string&) {
  return Error{ErrorCode::kUnavailable, "built without the headers of cuBLASLt"};
}

}  // namespace flotilla::cuda_check

#endif
