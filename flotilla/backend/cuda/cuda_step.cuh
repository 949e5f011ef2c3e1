// What a step copies to the card, and the recording of steps as CUDA graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "flotilla/backend/backend.h"

namespace flotilla::backend::cuda {

// A step runs in one of three ways. Immediate: every operation is launched as it comes. Recording:
// the same, into a graph that is launched at the end. Replaying: operations only write their
// arguments (ids, positions, pages) to the places that the recorded launches read, then the graph
// runs again. The first step of a shape is immediate, the second recorded, later ones replayed.
class CudaStep {
 public:
  explicit CudaStep(cudaStream_t stream);
  ~CudaStep();
  CudaStep(const CudaStep&) = delete;
  CudaStep& operator=(const CudaStep&) = delete;

  void begin(const StepShape& shape, bool may_record);
  void end();

  bool in_step() const { return in_step_; }
  bool launches() const { return mode_ != Mode::kReplaying; }
  // Copies arguments of an operation; the address is good until the next step begins, outside of
  // steps until the operation has been launched.
  const void* stage(const void* data, std::size_t bytes);
  // The same without a copy of its own: the caller fills the host part at once.
  struct Place {
    std::byte* host;
    const void* device;
    std::size_t bytes;
  };
  Place reserve(std::size_t bytes);
  void commit(const Place& place);
  // Copied once for the lifetime of this object, whatever the step.
  const float* constant(std::span<const float> values);

  // Pages per sequence that every table of this step has room for.
  int page_bucket() const { return page_bucket_; }
  std::uint64_t num_replays() const { return num_replays_; }
  // Time that replayed steps spent on the processor before their launch, in all.
  double replay_seconds() const { return replay_seconds_; }
  // In recorded steps: an address that must be the same at every replay.
  void note_address(const void* address);
  void set_graphs(bool on) { graphs_ = on; }

 private:
  enum class Mode { kImmediate, kRecording, kReplaying };
  struct Key {
    std::uint64_t model;
    std::size_t num_rows;
    std::int64_t num_wanted;
    bool greedy;
    int page_bucket;
    auto operator<=>(const Key&) const = default;
  };
  struct Recorded {
    int times_seen = 0;
    cudaGraphExec_t graph = nullptr;
    std::size_t staged_bytes = 0;
    std::vector<const void*> addresses = {};
  };

  cudaStream_t stream_;
  // Pinned, two that take turns: the arguments of a step are written while those of the step
  // before may still be read.
  static constexpr int kBuffers = 2;
  std::byte* buffers_[kBuffers] = {};
  cudaEvent_t read_[kBuffers] = {};  // everything that copies from the buffer has ended
  int turn_ = 0;
  std::byte* host_ = nullptr;  // buffers_[turn_]
  std::byte* device_ = nullptr;
  std::size_t used_ = 0;
  bool in_step_ = false;
  bool graphs_ = true;
  Mode mode_ = Mode::kImmediate;
  int page_bucket_ = 1;
  Recorded* current_ = nullptr;
  std::size_t next_address_ = 0;
  std::map<Key, Recorded> recorded_;
  struct Constant {
    std::vector<float> values;
    std::shared_ptr<tensor::Buffer> on_card;
  };
  std::vector<Constant> constants_;  // few: a model has one for each kind of layer
  std::uint64_t num_replays_ = 0;
  double replay_seconds_ = 0;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace flotilla::backend::cuda
