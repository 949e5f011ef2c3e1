#include "flotilla/backend/cuda/cuda_step.cuh"

#include <algorithm>
#include <bit>
#include <cstring>

#include "flotilla/backend/cuda/device_memory.h"
#include "flotilla/backend/device_error.h"

namespace flotilla::backend::cuda {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 16;

}  // namespace

CudaStep::CudaStep(cudaStream_t stream) : stream_(stream) {
  void* device = nullptr;
  for (int i = 0; i < kBuffers; ++i) {
    void* host = nullptr;
    check_cuda(cudaMallocHost(&host, kStagingBytes), "allocating pinned memory");
    buffers_[i] = static_cast<std::byte*>(host);
    check_cuda(cudaEventCreateWithFlags(&read_[i], cudaEventDisableTiming), "making an event");
  }
  host_ = buffers_[0];
  check_cuda(cudaMalloc(&device, kStagingBytes), "allocating memory for arguments");
  device_ = static_cast<std::byte*>(device);
}

CudaStep::~CudaStep() {
  for (auto& [key, recorded] : recorded_) {
    if (recorded.graph != nullptr) (void)cudaGraphExecDestroy(recorded.graph);
  }
  (void)cudaFree(device_);
  for (int i = 0; i < kBuffers; ++i) {
    (void)cudaFreeHost(buffers_[i]);
    if (read_[i] != nullptr) (void)cudaEventDestroy(read_[i]);
  }
}

void CudaStep::begin(const StepShape& shape, bool may_record) {
  // A step that failed half way leaves its recording behind.
  if (in_step_ && mode_ == Mode::kRecording) {
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
  }
  check_cuda(cudaEventRecord(read_[turn_], stream_), "beginning a step");
  turn_ = (turn_ + 1) % kBuffers;
  host_ = buffers_[turn_];
  check_cuda(cudaEventSynchronize(read_[turn_]), "finishing an earlier step");
  in_step_ = true;
  begun_ = std::chrono::steady_clock::now();
  used_ = next_address_ = 0;
  mode_ = Mode::kImmediate;
  current_ = nullptr;
  int last = 0;
  bool decodes = !shape.rows.empty();
  for (const KvRow& row : shape.rows) {
    last = std::max(last, row.first_position + row.num_tokens - 1);
    decodes = decodes && row.num_tokens == 1;
  }
  page_bucket_ =
      static_cast<int>(std::bit_ceil(static_cast<unsigned>(last / tensor::kKvBlock + 1)));
  if (!decodes || !may_record || !graphs_) return;
  current_ =
      &recorded_[Key{shape.model, shape.rows.size(), shape.num_wanted, shape.greedy, page_bucket_}];
  if (current_->graph != nullptr) {
    mode_ = Mode::kReplaying;
  } else if (++current_->times_seen > 1) {
    mode_ = Mode::kRecording;
    current_->addresses.clear();
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
               "recording a step");
  }
}

void CudaStep::end() {
  in_step_ = false;
  if (mode_ == Mode::kImmediate) return;
  if (mode_ == Mode::kRecording) {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "recording a step");
    const cudaError_t made = cudaGraphInstantiate(&current_->graph, graph, 0);
    (void)cudaGraphDestroy(graph);
    check_cuda(made, "recording a step");
    current_->staged_bytes = used_;
  } else {
    FLOTILLA_CHECK(current_->staged_bytes == used_ && current_->addresses.size() == next_address_,
                   "a step differs from the recorded one of equal shape");
    ++num_replays_;
    replay_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }
  check_cuda(cudaMemcpyAsync(device_, host_, used_, cudaMemcpyHostToDevice, stream_),
             "copying arguments");
  check_cuda(cudaGraphLaunch(current_->graph, stream_), "launching a step");
  mode_ = Mode::kImmediate;
}

void CudaStep::note_address(const void* address) {
  if (mode_ == Mode::kRecording) current_->addresses.push_back(address);
  if (mode_ == Mode::kReplaying) {
    FLOTILLA_CHECK(
        next_address_ < current_->addresses.size() && current_->addresses[next_address_] == address,
        "a replayed step uses other memory than the recorded one");
  }
  ++next_address_;
}

CudaStep::Place CudaStep::reserve(std::size_t bytes) {
  const std::size_t needed = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (!in_step_ && used_ + needed > kStagingBytes) {
    check_cuda(cudaStreamSynchronize(stream_), "waiting for arguments");
    used_ = 0;
  }
  if (used_ + needed > kStagingBytes) {
    throw DeviceError("the arguments of a step take more than " + std::to_string(kStagingBytes) +
                      " bytes");
  }
  const Place place{host_ + used_, device_ + used_, bytes};
  used_ += needed;
  return place;
}

void CudaStep::commit(const Place& place) {
  if (mode_ != Mode::kImmediate) return;  // everything is copied when the graph is launched
  check_cuda(cudaMemcpyAsync(const_cast<void*>(place.device), place.host, place.bytes,
                             cudaMemcpyHostToDevice, stream_),
             "copying arguments");
}

const void* CudaStep::stage(const void* data, std::size_t bytes) {
  const Place place = reserve(bytes);
  if (bytes > 0) std::memcpy(place.host, data, bytes);
  commit(place);
  return place.device;
}

const float* CudaStep::constant(std::span<const float> values) {
  const auto address = [](const Constant& c) {
    return reinterpret_cast<const float*>(c.on_card->data());
  };
  for (const Constant& c : constants_) {
    if (c.values.size() == values.size() &&
        std::memcmp(c.values.data(), values.data(), values.size_bytes()) == 0)
      return address(c);
  }
  FLOTILLA_CHECK(mode_ == Mode::kImmediate, "a constant appears in a recorded step only");
  auto made = make_device_buffer(values.size_bytes());
  if (!made.ok()) throw DeviceError(made.error().message);
  check_cuda(cudaMemcpyAsync((*made)->data(), values.data(), values.size_bytes(),
                             cudaMemcpyHostToDevice, stream_),
             "copying a constant");
  check_cuda(cudaStreamSynchronize(stream_), "copying a constant");
  constants_.push_back({{values.begin(), values.end()}, std::move(made).value()});
  return address(constants_.back());
}

}  // namespace flotilla::backend::cuda
