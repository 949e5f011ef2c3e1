#include "flotilla/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "flotilla/backend/cuda/cuda_matrix.h"
#include "flotilla/backend/cuda/cuda_state.cuh"
#include "flotilla/backend/device_error.h"

namespace flotilla::backend::cuda {
namespace {

using tensor::DType;

int as_int(std::int64_t v) { return static_cast<int>(v); }

const CudaMatrix& matrix_of(const Matrix* matrix) {
  return static_cast<const CudaMatrix&>(*matrix);
}

const std::uint8_t* packed_of(const CudaMatrix& m) {
  return reinterpret_cast<const std::uint8_t*>(m.packed());
}

}  // namespace

Tensor CudaBackend::allocate(const Shape& shape, DType dtype) {
  const auto bytes = static_cast<std::size_t>(shape.num_elements()) * tensor::dtype_bytes(dtype);
  auto buffer = state_->scratch->allocate(bytes);
  if (state_->step->in_step()) state_->step->note_address(buffer->data());
  return Tensor(std::move(buffer), 0, shape, dtype);
}

Result<std::unique_ptr<Matrix>> CudaBackend::prepare(const StoredMatrix& stored) {
  bind();
  // Its threads and buffers are of use while a model loads; steps begin afterwards.
  if (!state_->upload) state_->upload = std::make_unique<HostUpload>(state_->device);
  return make_cuda_matrix(stored, *state_->upload, state_->stream);
}

Result<std::unique_ptr<Matrix>> CudaBackend::prepare_gated(const StoredMatrix& gate,
                                                           const StoredMatrix& up) {
  bind();
  if (!state_->upload) state_->upload = std::make_unique<HostUpload>(state_->device);
  return make_gated_matrix(gate, up, *state_->upload, state_->stream);
}

Tensor CudaBackend::upload(const Tensor& host) {
  bind();
  auto buffer = make_device_buffer(host.num_bytes());
  if (!buffer.ok()) throw DeviceError(buffer.error().message);
  check_cuda(cudaMemcpyAsync((*buffer)->data(), host.bytes(), host.num_bytes(),
                             cudaMemcpyHostToDevice, state_->stream),
             "copying a tensor");
  check_cuda(cudaStreamSynchronize(state_->stream), "copying a tensor");
  return Tensor(std::move(buffer).value(), 0, host.shape(), host.dtype());
}

Tensor CudaBackend::to_host(const Tensor& tensor) {
  return tensor.empty() ? tensor : fetch(tensor)->wait();
}

namespace {

class PinnedCopy final : public HostCopy {
 public:
  PinnedCopy(Tensor to, const std::byte* from, cudaStream_t stream) : to_(std::move(to)) {
    check_cuda(cudaEventCreateWithFlags(&there_, cudaEventDisableTiming), "making an event");
    cudaError_t error =
        cudaMemcpyAsync(to_.bytes(), from, to_.num_bytes(), cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaEventRecord(there_, stream);
    if (error != cudaSuccess) (void)cudaEventDestroy(there_);
    check_cuda(error, "reading results");
  }
  // The memory may not be used again before the copy has ended.
  ~PinnedCopy() override {
    (void)cudaEventSynchronize(there_);
    (void)cudaEventDestroy(there_);
  }
  Tensor wait() override {
    check_cuda(cudaEventSynchronize(there_), "running a step");
    return to_;
  }

 private:
  Tensor to_;
  cudaEvent_t there_ = nullptr;
};

}  // namespace

std::shared_ptr<HostCopy> CudaBackend::fetch(const Tensor& tensor) {
  bind();
  Tensor to(state_->pinned->allocate(tensor.num_bytes()), 0, tensor.shape(), tensor.dtype());
  return std::make_shared<PinnedCopy>(std::move(to), tensor.bytes(), state_->stream);
}

void CudaBackend::begin_step(const StepShape& shape) {
  bind();
  state_->upload.reset();
  state_->row_key.clear();
  state_->row_window = -1;
  state_->inputs.reset();
  if (state_->turn) state_->turn.unlock();  // of a step that failed half way
  state_->turn = state_->use.turn();
  state_->step->begin(shape, state_->scratch->used_bytes() == 0);
}

void CudaBackend::end_step() {
  if (state_->inputs) store_inputs();
  state_->step->end();
  if (!state_->turn) return;
  const cudaError_t ended = cudaStreamSynchronize(state_->stream);
  state_->turn.unlock();
  check_cuda(ended, "running a step");
}

void CudaBackend::wait() {
  bind();
  check_cuda(cudaStreamSynchronize(state_->stream), "running a step");
}

void CudaBackend::embedding(const EmbeddingArgs& args) {
  if (args.ids.empty()) return;
  const CudaMatrix& m = matrix_of(args.table);
  const std::size_t count = args.ids.size();
  FLOTILLA_CHECK(args.chosen.empty() || args.chosen.size() == count, "a choice for each token");
  // The same places in every step, whoever says what the tokens are.
  const CudaStep::Place place = state_->step->reserve(2 * count * sizeof(std::int32_t));
  auto* host = reinterpret_cast<std::int32_t*>(place.host);
  std::memcpy(host, args.ids.data(), args.ids.size_bytes());
  if (args.chosen.empty()) {
    std::fill_n(host + count, count, -1);
  } else {
    std::memcpy(host + count, args.chosen.data(), args.chosen.size_bytes());
  }
  state_->step->commit(place);
  const auto* ids = static_cast<const std::int32_t*>(place.device);
  const TokenIds tokens{ids, ids + count,
                        reinterpret_cast<const std::int32_t*>(state_->choices->data())};
  run("embedding", [&](cudaStream_t stream) {
    return m.is_packed()
               ? embedding_blocks(m.format(), packed_of(m), as_int(m.k()), tokens,
                                  static_cast<int>(count), args.scale, values_of(args.out), stream)
               : embedding_generic(generic_matrix(m), tokens, static_cast<int>(count), args.scale,
                                   values_of(args.out), stream);
  });
}

void CudaBackend::linear(const LinearArgs& args) {
  const Matrix* weights[] = {args.weight};
  const Tensor outs[] = {args.out};
  run_products(weights, args.x, outs);
}

void CudaBackend::linear_group(const LinearGroupArgs& args) {
  run_products(args.weights, args.x, args.outs);
}

void CudaBackend::linear_gated(const LinearArgs& args) {
  const Matrix* weights[] = {args.weight};
  const Tensor outs[] = {args.out};
  run_products(weights, args.x, outs, true);
}

void CudaBackend::run_products(std::span<const Matrix* const> weights, const Tensor& x_any,
                               std::span<const Tensor> outs, bool gated) {
  const std::int64_t m = x_any.dim(0), k = x_any.dim(1);
  if (m == 0) return;
  Tensor x = x_any;
  if (x.dtype() == DType::kF32) {
    x = allocate(x_any.shape(), DType::kBF16);
    run("rounding an input", [&](cudaStream_t stream) {
      return to_bf16(x_any.data<float>(), x.data<bf16>(), static_cast<std::size_t>(m * k), stream);
    });
  }
  const bool fused = weights.size() <= kMaxSegments &&
                     std::all_of(weights.begin(), weights.end(),
                                 [&](const Matrix* w) {
                                   return matrix_of(w).is_packed() &&
                                          matrix_of(w).format() == matrix_of(weights[0]).format();
                                 }) &&
                     std::all_of(outs.begin(), outs.end(),
                                 [&](const Tensor& t) { return t.dtype() == outs[0].dtype(); });
  if (!fused && weights.size() > 1) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      run_products(weights.subspan(i, 1), x, outs.subspan(i, 1));
    return;
  }
  if (!fused) {
    run("linear", [&](cudaStream_t stream) {
      return linear_generic(generic_matrix(matrix_of(weights[0])), x.data<bf16>(), as_int(m),
                            values_of(outs[0]), stream);
    });
    return;
  }
  LinearParams params{.segments = {},
                      .y_is_f32 = outs[0].dtype() == DType::kF32,
                      .partials = nullptr,
                      .totals = nullptr,
                      .m = as_int(m),
                      .part = {}};
  int blocks = 0;
  for (int i = 0; i < kMaxSegments; ++i) {
    Segment& s = params.segments[i];
    s = {.w = nullptr, .y = nullptr, .n = 0, .first_block = INT_MAX, .gated = gated};
    if (static_cast<std::size_t>(i) >= weights.size()) continue;
    const CudaMatrix& w = matrix_of(weights[static_cast<std::size_t>(i)]);
    s = {.w = packed_of(w),
         .y = outs[static_cast<std::size_t>(i)].bytes(),
         .n = as_int(w.n()),
         .first_block = blocks,
         .gated = gated};
    blocks += (as_int(w.n()) + kRows - 1) / kRows;
  }
  const int groups = as_int(k) / kGroup;
  params.part = {.units = blocks * groups,
                 .groups = groups,
                 .procs = partition_procs(blocks, groups,
                                          kProcsPerMultiprocessor * state_->info.multiprocessors)};
  run("linear", [&](cudaStream_t stream) {
    return linear_blocks(matrix_of(weights[0]).format(), x.data<bf16>(), as_int(k), params,
                         state_->workspace, state_->info.multiprocessors, stream);
  });
}

void CudaBackend::rms_norm(const RmsNormArgs& args) {
  NormParams p{};
  p.x = values_of(args.x);
  p.norms = true;
  p.weight = args.weight.data<float>();
  p.eps = args.eps;
  p.out = values_of(args.out);
  p.rows = as_int(args.x.dim(0)), p.dim = as_int(args.x.dim(1));
  run("rms_norm", [&](cudaStream_t stream) { return norm(p, stream); });
}

void CudaBackend::norm_add(const NormAddArgs& args) {
  NormParams p{};
  p.x = values_of(args.x);
  p.add_weight = args.weight.data<float>();
  p.add_eps = args.eps;
  p.scale = args.scale;
  p.residual = args.residual.data<float>();
  p.out = {nullptr, false};
  p.rows = as_int(args.x.dim(0)), p.dim = as_int(args.x.dim(1));
  run("norm_add", [&](cudaStream_t stream) { return norm(p, stream); });
}

void CudaBackend::norm_add_norm(const NormAddNormArgs& args) {
  NormParams p{};
  p.x = values_of(args.add.x);
  p.add_weight = args.add.weight.data<float>();
  p.add_eps = args.add.eps;
  p.scale = args.add.scale;
  p.residual = args.add.residual.data<float>();
  p.norms = true;
  p.weight = args.weight.data<float>();
  p.eps = args.eps;
  p.out = values_of(args.out);
  p.rows = as_int(args.add.x.dim(0)), p.dim = as_int(args.add.x.dim(1));
  run("norm_add_norm", [&](cudaStream_t stream) { return norm(p, stream); });
}

void CudaBackend::rope(const RopeArgs& args) {
  if (args.positions.empty()) return;
  const auto* positions = static_cast<const std::int32_t*>(
      state_->step->stage(args.positions.data(), args.positions.size_bytes()));
  const float* frequencies = state_->step->constant(args.inverse_frequencies);
  run("rope", [&](cudaStream_t stream) {
    return cuda::rope(values_of(args.x), positions, frequencies, as_int(args.x.dim(0)),
                      as_int(args.x.dim(1)), as_int(args.x.dim(2)), stream);
  });
}

void CudaBackend::gelu_mul(const GeluMulArgs& args) {
  const auto count = static_cast<std::size_t>(args.gate.shape().num_elements());
  if (count == 0) return;
  run("gelu_mul", [&](cudaStream_t stream) {
    return cuda::gelu_mul(values_of(args.gate), values_of(args.up), values_of(args.out), count,
                          stream);
  });
}

void CudaBackend::softcap(const SoftcapArgs& args) {
  const auto count = static_cast<std::size_t>(args.x.shape().num_elements());
  if (count == 0) return;
  run("softcap", [&](cudaStream_t stream) {
    return cuda::softcap(values_of(args.x), args.cap, count, stream);
  });
}

void CudaBackend::gather_rows(const GatherRowsArgs& args) {
  if (args.rows.empty()) return;
  const auto* rows = static_cast<const std::int32_t*>(
      state_->step->stage(args.rows.data(), args.rows.size_bytes()));
  const std::size_t bytes = args.out.num_bytes() / args.rows.size();
  run("gather_rows", [&](cudaStream_t stream) {
    return cuda::gather_rows(args.source.bytes(), rows, static_cast<int>(args.rows.size()), bytes,
                             args.out.bytes(), stream);
  });
}

void CudaBackend::argmax(const ArgmaxArgs& args) {
  const std::int64_t rows = args.x.dim(0);
  if (rows == 0) return;
  const Tensor scratch = allocate({rows, kArgmaxParts * 2}, DType::kI32);
  run("argmax", [&](cudaStream_t stream) {
    return cuda::argmax(args.x.data<float>(), as_int(rows), as_int(args.x.dim(1)), scratch.bytes(),
                        args.out.data<std::int32_t>(),
                        reinterpret_cast<std::int32_t*>(state_->choices->data()), stream);
  });
}

}  // namespace flotilla::backend::cuda
