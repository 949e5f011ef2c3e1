// Finding and opening a card, and what it offers beside the operations.
#include "flotilla/backend/cuda/cuda_device.h"

#include <algorithm>

#include "flotilla/backend/cuda/cuda_matrix.h"
#include "flotilla/backend/cuda/cuda_state.cuh"
#include "flotilla/backend/device_error.h"

namespace flotilla::backend::cuda {
namespace {

constexpr std::size_t kMaxScratch = std::size_t{4} << 30;
constexpr int kHopperMajor = 9;

std::string prefix(int device) { return "CUDA device " + std::to_string(device) + ": "; }

}  // namespace

CudaBackend::State::~State() {
  // The order matters: nothing may run when memory goes.
  if (stream != nullptr) (void)cudaStreamSynchronize(stream);
  step.reset();
  if (stream != nullptr) (void)cudaStreamDestroy(stream);
}

Result<CudaDeviceInfo> probe_cuda_device(int device) {
  const auto unavailable = [&](cudaError_t error) {
    (void)cudaGetLastError();
    return Error{ErrorCode::kUnavailable, prefix(device) + cudaGetErrorString(error)};
  };
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    (void)cudaGetLastError();
    return Error{ErrorCode::kUnavailable, prefix(device) + "no NVIDIA driver is installed"};
  }
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return unavailable(error);
  if (device < 0 || device >= count) {
    return Error{ErrorCode::kUnavailable,
                 prefix(device) + "there are " + std::to_string(count) + " devices"};
  }
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess)
    return unavailable(error);
  if (properties.major != kHopperMajor) {
    return Error{ErrorCode::kUnavailable,
                 prefix(device) + properties.name + " has compute capability " +
                     std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                     ", the kernels are for Hopper cards (9.0)"};
  }
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess)
    return unavailable(error);
  CudaDeviceInfo info;
  info.name = properties.name;
  info.multiprocessors = properties.multiProcessorCount;
  std::size_t total = 0;
  if (const cudaError_t error = cudaMemGetInfo(&info.free_bytes, &total); error != cudaSuccess)
    return unavailable(error);
  info.memory_bytes = total;
  info.driver = std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10);
  return info;
}

void release_cuda_device(int device) {
  if (cudaSetDevice(device) == cudaSuccess) (void)cudaDeviceReset();
  (void)cudaGetLastError();
}

Result<std::unique_ptr<CudaBackend>> CudaBackend::make(int device) {
  auto state = std::make_unique<State>();
  FLOTILLA_TRY(state->use, CardUse::take(device));
  FLOTILLA_TRY(state->info, probe_cuda_device(device));
  State& s = *state;
  s.device = device;
  try {
    check_cuda(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking), "making a stream");
    const int multiprocessors = s.info.multiprocessors;
    const std::size_t partial_bytes =
        Workspace::partial_bytes(kProcsPerMultiprocessor * multiprocessors);
    FLOTILLA_TRY(s.partials, make_device_buffer(partial_bytes));
    FLOTILLA_TRY(s.totals, make_device_buffer(Workspace::total_bytes(multiprocessors)));
    FLOTILLA_TRY(s.attention_totals, make_device_buffer(attention_total_bytes(multiprocessors)));
    FLOTILLA_TRY(s.choices, make_device_buffer(kMostChoices * sizeof(std::int32_t)));
    FLOTILLA_TRY(auto scratch, make_device_buffer(std::min(kMaxScratch, s.info.free_bytes / 8)));
    s.workspace = {reinterpret_cast<float*>(s.partials->data()),
                   reinterpret_cast<float*>(s.totals->data())};
    s.scratch = std::make_shared<ScratchRegion>(std::move(scratch));
    s.step = std::make_unique<CudaStep>(s.stream);
    check_cuda(cudaMemsetAsync(s.choices->data(), 0, s.choices->size(), s.stream),
               "preparing memory");
    check_cuda(fill_missing(s.workspace.partials, partial_bytes, s.stream), "preparing memory");
    check_cuda(cudaStreamSynchronize(s.stream), "preparing memory");
  } catch (const DeviceError& error) {
    return Error{ErrorCode::kUnavailable, prefix(device) + error.what()};
  }
  return std::unique_ptr<CudaBackend>(new CudaBackend(std::move(state)));
}

CudaBackend::CudaBackend(std::unique_ptr<State> state) : state_(std::move(state)) {}
CudaBackend::~CudaBackend() = default;

void CudaBackend::bind() { check_cuda(cudaSetDevice(state_->device), "choosing the device"); }

Capabilities CudaBackend::capabilities() const {
  return {.device = state_->info.name + ", " + std::to_string(state_->info.multiprocessors) +
                    " multiprocessors, " + std::to_string(state_->info.memory_bytes >> 20) + " MiB",
          .keeps_bit_contract = true,
          .num_threads = 1,
          .chooses_tokens = true,
          .head_dims = {32, 64, 128, 256, 512}};
}

std::unique_ptr<Matrix> CudaBackend::synthetic_matrix(std::int64_t n, std::int64_t k,
                                                      std::uint64_t seed) {
  FLOTILLA_CHECK(k % kGroup == 0, "a synthetic matrix has whole groups");
  auto packed = make_device_buffer(packed_bytes(BlockFormat::kAffine4, n, k));
  if (!packed.ok()) throw DeviceError(packed.error().message);
  check_cuda(synthesize(reinterpret_cast<std::uint8_t*>((*packed)->data()), static_cast<int>(n),
                        static_cast<int>(k), seed, state_->stream),
             "making weights");
  return std::make_unique<CudaMatrix>(n, k, BlockFormat::kAffine4, std::move(packed).value());
}

std::unique_ptr<Matrix> CudaBackend::synthetic_matrix(WeightFormat format, int bits, int group_size,
                                                      std::int64_t n, std::int64_t k,
                                                      std::uint64_t seed) {
  const auto blocks = block_format(format, bits, group_size, tensor::DType::kBF16, k);
  if (!blocks) return nullptr;
  auto packed = make_device_buffer(packed_bytes(*blocks, n, k));
  if (!packed.ok()) throw DeviceError(packed.error().message);
  check_cuda(synthesize_blocks(*blocks, reinterpret_cast<std::uint8_t*>((*packed)->data()),
                               static_cast<int>(n), static_cast<int>(k), seed, state_->stream),
             "making weights");
  return std::make_unique<CudaMatrix>(n, k, *blocks, std::move(packed).value());
}

void CudaBackend::count_differences(const Tensor& a, const Tensor& b, const Tensor& count) {
  FLOTILLA_CHECK(a.num_bytes() == b.num_bytes() && a.num_bytes() % 4 == 0,
                 "tensors to compare have one size");
  run("comparing", [&](cudaStream_t stream) {
    return cuda::count_differences(a.bytes(), b.bytes(), a.num_bytes(),
                                   reinterpret_cast<unsigned long long*>(count.bytes()), stream);
  });
}

double CudaBackend::timed(const std::function<void()>& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(cudaEventCreate(&begin), "timing");
  check_cuda(cudaEventCreate(&end), "timing");
  check_cuda(cudaEventRecord(begin, state_->stream), "timing");
  work();
  check_cuda(cudaEventRecord(end, state_->stream), "timing");
  check_cuda(cudaEventSynchronize(end), "timing");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "timing");
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return static_cast<double>(milliseconds) * 1e-3;
}

double CudaBackend::read_bandwidth(std::size_t bytes, int repeats) {
  auto buffer = make_device_buffer(bytes);
  auto sink = make_device_buffer(4 * 1024);
  if (!buffer.ok() || !sink.ok()) throw DeviceError("no memory to measure the reading rate");
  check_cuda(cudaMemsetAsync((*buffer)->data(), 0x5a, bytes, state_->stream), "reading memory");
  double best = 0;
  for (int i = 0; i <= repeats; ++i) {
    const double seconds = timed([&] {
      check_cuda(
          read_all((*buffer)->data(), bytes, reinterpret_cast<std::uint32_t*>((*sink)->data()),
                   state_->info.multiprocessors, state_->stream),
          "reading memory");
    });
    if (i > 0) best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  return best;
}

SelfTest CudaBackend::self_test() {
  SelfTest result;
  result.differences = count_wgmma_differences(state_->stream, &result.outputs);
  return result;
}

void CudaBackend::inject_fault() {
  bind();
  check_cuda(fault(state_->stream), "injecting a fault");
}

void CudaBackend::set_graphs(bool on) { state_->step->set_graphs(on); }
std::uint64_t CudaBackend::num_replays() const { return state_->step->num_replays(); }
double CudaBackend::replay_seconds() const { return state_->step->replay_seconds(); }

CudaDevice* cuda_device(Backend& backend) { return dynamic_cast<CudaDevice*>(&backend); }

}  // namespace flotilla::backend::cuda

namespace flotilla::backend {

Result<std::unique_ptr<Backend>> make_cuda_backend(int device) {
  FLOTILLA_TRY(auto made, cuda::CudaBackend::make(device));
  return std::unique_ptr<Backend>(std::move(made));
}

}  // namespace flotilla::backend
