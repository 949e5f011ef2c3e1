// The Backend of one NVIDIA card of the Hopper generation. See backend.h for the contract.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/backend/cuda/cuda_device.h"

namespace flotilla::backend::cuda {

class CudaStep;
class ScratchRegion;

class CudaBackend final : public Backend, public CudaDevice, public PageDevice {
 public:
  // kUnavailable: no driver, no card, or not a Hopper card.
  static Result<std::unique_ptr<CudaBackend>> make(int device);
  ~CudaBackend() override;

  Capabilities capabilities() const override;
  tensor::DType activation_dtype() const override { return tensor::DType::kBF16; }
  Tensor allocate(const Shape& shape, tensor::DType dtype) override;
  Result<std::unique_ptr<Matrix>> prepare(const StoredMatrix& stored) override;
  Result<std::unique_ptr<Matrix>> prepare_gated(const StoredMatrix& gate,
                                                const StoredMatrix& up) override;
  Tensor upload(const Tensor& host) override;
  Tensor to_host(const Tensor& tensor) override;
  std::shared_ptr<HostCopy> fetch(const Tensor& tensor) override;
  int kv_element_bytes() const override { return 2; }
  PageDevice* page_device() override { return this; }
  void begin_step(const StepShape& shape) override;
  void end_step() override;
  void wait() override;

  void embedding(const EmbeddingArgs& args) override;
  void linear(const LinearArgs& args) override;
  void linear_group(const LinearGroupArgs& args) override;
  void linear_gated(const LinearArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void norm_add(const NormAddArgs& args) override;
  void rope(const RopeArgs& args) override;
  void gelu_mul(const GeluMulArgs& args) override;
  void softcap(const SoftcapArgs& args) override;
  void kv_append(const KvAppendArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_inputs(const AttentionInputArgs& args) override;
  void norm_add_norm(const NormAddNormArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void argmax(const ArgmaxArgs& args) override;
  std::vector<Shortlist> shortlist(const ShortlistArgs& args) override;

  std::uint64_t free_bytes() override;
  Result<std::shared_ptr<tensor::Buffer>> allocate_pages(std::size_t bytes) override;
  void zero_pages(std::span<std::byte* const> pages, std::size_t bytes) override;
  void copy_page(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void copy_positions(const KvGeometry& geometry, std::byte* to, const std::byte* from,
                      std::int64_t positions) override;

  std::unique_ptr<Matrix> synthetic_matrix(WeightFormat format, int bits, int group_size,
                                           std::int64_t n, std::int64_t k,
                                           std::uint64_t seed) override;
  void count_differences(const Tensor& a, const Tensor& b, const Tensor& count) override;
  std::unique_ptr<Matrix> synthetic_matrix(std::int64_t n, std::int64_t k,
                                           std::uint64_t seed) override;
  double read_bandwidth(std::size_t bytes, int repeats) override;
  double timed(const std::function<void()>& work) override;
  SelfTest self_test() override;
  void inject_fault() override;
  void set_graphs(bool on) override;
  std::uint64_t num_replays() const override;
  double replay_seconds() const override;

 private:
  struct State;
  explicit CudaBackend(std::unique_ptr<State> state);
  void run_products(std::span<const Matrix* const> weights, const Tensor& x,
                    std::span<const Tensor> outs, bool gated = false);
  // Launches unless the step is a replay; throws DeviceError.
  template <class Launch>
  void run(const char* what, Launch&& launch);
  void store_inputs();
  // The runtime keeps a device for each thread: this one's, for the calling thread.
  void bind();
  std::vector<Shortlist> shortlist_round(const Tensor& x, std::span<const ShortlistRow> wanted);
  const void* stage_rows(std::span<const KvRow> rows, int window);
  std::pair<const void*, int> stage_page_spans(std::span<const KvRow> rows);

  std::unique_ptr<State> state_;
};

}  // namespace flotilla::backend::cuda
