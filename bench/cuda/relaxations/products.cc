#include "bench/cuda/relaxations/products.h"

#include <algorithm>
#include <climits>
#include <stdexcept>

namespace flotilla::cuda_check {

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

int ProductShape::rows() const {
  int total = 0;
  for (const int rows : n) total += rows;
  return total;
}
int ProductShape::row_blocks() const {
  int total = 0;
  for (const int rows : n) total += (rows + device::kRows - 1) / device::kRows;
  return total;
}

namespace {

int processors_of_card() {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}
constexpr int kWidest = 43008;  // outputs of a product of a layer
constexpr int kDeepest = 21504;
constexpr int kHead = 262144;
constexpr int kProcs = 2;  // of a multiprocessor

}  // namespace

Products::Products(int weight_sets)
    : multiprocessors_(processors_of_card()),
      shapes_({{"q+k+v", {8192, 4096, 4096}, 5376, 60},
               {"o", {5376}, 8192, 60},
               {"gate+up", {21504, 21504}, 5376, 60},
               {"down", {5376}, 21504, 60},
               {"head", {kHead}, 5376, 1}}),
      x_(std::size_t{kMostTokens} * kDeepest * 2),
      y_(std::max(std::size_t{kMostTokens} * kWidest * 2, std::size_t{64} * kHead * 4)),
      partials_(device::Workspace::partial_bytes(kProcs * multiprocessors_)),
      totals_(device::Workspace::total_bytes(multiprocessors_)),
      counters_(8 * sizeof(int) * kHead / device::kRows),
      loose_partials_(2 * partials_.bytes()) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  check(cudaEventCreate(&begin_));
  check(cudaEventCreate(&end_));
  check(device::fill_missing(partials_.as<float>(), partials_.bytes(), stream_));
  check(cudaMemsetAsync(counters_.as<void>(), 0, counters_.bytes(), stream_));
  // Any bf16 numbers will do for x: those of dense blocks.
  check(device::synthesize_blocks(device::BlockFormat::kDense, x_.as<std::uint8_t>(), kMostTokens,
                                  kDeepest, 1, stream_));
  for (const ProductShape& shape : shapes_) {
    weights_.emplace_back();
    const int sets = shape.per_step == 1 ? 1 : weight_sets;
    for (int i = 0; i < sets; ++i) {
      const auto blocks = static_cast<std::size_t>(shape.row_blocks()) *
                          static_cast<std::size_t>(shape.k / device::kGroup);
      weights_.back().push_back(std::make_unique<CardBuffer>(blocks * device::kBlockBytes));
      check(device::synthesize(weights_.back().back()->as<std::uint8_t>(),
                               shape.row_blocks() * device::kRows, shape.k,
                               static_cast<std::uint64_t>(100 + i), stream_));
    }
  }
  check(cudaStreamSynchronize(stream_));
}

Products::~Products() {
  (void)cudaStreamSynchronize(stream_);
  (void)cudaEventDestroy(begin_);
  (void)cudaEventDestroy(end_);
  (void)cudaStreamDestroy(stream_);
}

int Products::usual_procs(const ProductShape& shape) const {
  return device::partition_procs(shape.row_blocks(), shape.k / device::kGroup,
                                 kProcs * multiprocessors_);
}

void Products::launch(const Call& call) {
  const ProductShape& shape = shapes_[static_cast<std::size_t>(call.shape)];
  const auto& sets = weights_[static_cast<std::size_t>(call.shape)];
  const CardBuffer& weights = *sets[static_cast<std::size_t>(call.set) % sets.size()];
  device::LinearParams params{.segments = {},
                              .y_is_f32 = call.y_is_f32,
                              .partials = partials_.as<float>(),
                              .totals = totals_.as<float>(),
                              .m = call.m,
                              .part = {}};
  const int groups = shape.k / device::kGroup;
  int block = 0;
  std::size_t out = 0;
  for (std::size_t i = 0; i < device::kMaxSegments; ++i) {
    device::Segment& s = params.segments[i];
    s = {.w = nullptr, .y = nullptr, .n = 0, .first_block = INT_MAX, .gated = false};
    if (i >= shape.n.size()) continue;
    s = {.w = weights.as<std::uint8_t>() + static_cast<std::size_t>(block) *
                                               static_cast<std::size_t>(groups) *
                                               device::kBlockBytes,
         .y = y_.as<std::uint8_t>() + out,
         .n = shape.n[i],
         .first_block = block,
         .gated = false};
    block += (shape.n[i] + device::kRows - 1) / device::kRows;
    out += static_cast<std::size_t>(call.m) * static_cast<std::size_t>(shape.n[i]) *
           (call.y_is_f32 ? 4 : 2);
  }
  params.part = {.units = block * groups,
                 .groups = groups,
                 .procs = call.procs == 0 ? usual_procs(shape) : call.procs};
  if (call.as_shipped) {
    check(device::linear_packed(x(), shape.k, params, {partials_.as<float>(), totals_.as<float>()},
                                multiprocessors_, stream_));
    return;
  }
  if (call.pieces == Pieces::kLastArriver) {
    params.totals = counters_.as<float>();
    params.partials = loose_partials_.as<float>();
  }
  check(relaxed_product(call.pieces, x(), shape.k, params, multiprocessors_, stream_));
}

std::vector<float> Products::outputs(std::size_t count) {
  std::vector<float> values(count);
  check(cudaMemcpyAsync(values.data(), y_.as<void>(), count * 4, cudaMemcpyDeviceToHost, stream_));
  check(cudaStreamSynchronize(stream_));
  return values;
}

void Products::clear_outputs() { check(cudaMemsetAsync(y_.as<void>(), 0, y_.bytes(), stream_)); }

double Products::seconds_at_once(const std::function<void()>& work) {
  check(cudaEventRecord(begin_, stream_));
  work();
  check(cudaEventRecord(end_, stream_));
  check(cudaEventSynchronize(end_));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin_, end_));
  return static_cast<double>(milliseconds) * 1e-3;
}

double Products::seconds(int repeats, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  work();  // first use of a kernel loads it, which a capture does not allow
  check(cudaStreamSynchronize(stream_));
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  work();
  check(cudaStreamEndCapture(stream_, &graph));
  check(cudaGraphInstantiate(&ready, graph, 0));
  double best = 1e9;
  for (int i = 0; i <= repeats; ++i) {
    const double time = seconds_at_once([&] { check(cudaGraphLaunch(ready, stream_)); });
    if (i > 0) best = std::min(best, time);
  }
  (void)cudaGraphExecDestroy(ready);
  (void)cudaGraphDestroy(graph);
  return best;
}

}  // namespace flotilla::cuda_check
