// The bit-contract on the card: a row has the same bits alone and among any number of others, and
// every time.
#include <algorithm>

#include "check_util.h"
#include "checks.h"
#include "device_kv.h"
#include "flotilla/backend/cuda/cuda_device.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/ops/ops.h"

namespace flotilla::cuda_check {
namespace {

using namespace flotilla::backend;  // NOLINT: checks of that module

constexpr std::int64_t kRows[] = {1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 65, 128, 200, 512};
constexpr std::int64_t kMostRows = 512;

// One product of several weights at every number of rows; rows are taken from two places of x.
void check_group(Backend& backend, const std::string& name,
                 std::span<const std::unique_ptr<Matrix>> weights, Report& report,
                 bool gated = false) {
  const auto product = [&](std::span<const Matrix* const> pointers, const Tensor& x) {
    if (gated) return std::vector<Tensor>{ops::linear_gated(backend, *pointers[0], x)};
    return ops::linear_group(backend, pointers, x);
  };
  std::vector<const Matrix*> pointers;
  for (const auto& w : weights) pointers.push_back(w.get());
  const std::int64_t k = pointers[0]->k();
  const Tensor x = on_card(backend, fixed_activations({kMostRows, k}, 77));
  std::vector<std::vector<Tensor>> alone(weights.size());
  // A few rows spread over x stand for all.
  const std::int64_t step = 37;
  for (std::int64_t r = 0; r < kMostRows; r += step) {
    const std::vector<Tensor> outs = product(pointers, x.rows(r, r + 1));
    for (std::size_t i = 0; i < outs.size(); ++i) alone[i].push_back(backend.to_host(outs[i]));
  }
  long long compared = 0, different = 0;
  for (const std::int64_t m : kRows) {
    for (const std::int64_t first : {std::int64_t{0}, kMostRows - m}) {
      const std::vector<Tensor> outs = product(pointers, x.rows(first, first + m));
      for (std::size_t i = 0; i < outs.size(); ++i) {
        const Tensor host = backend.to_host(outs[i]);
        for (std::int64_t r = (first + step - 1) / step * step; r < first + m; r += step) {
          ++compared;
          different += same_bytes(host.rows(r - first, r - first + 1),
                                  alone[i][static_cast<std::size_t>(r / step)])
                           ? 0
                           : 1;
        }
      }
    }
  }
  std::printf("  %-46s %lld rows compared, %lld differ\n", name.c_str(), compared, different);
  report.expect(name, different == 0 && compared > 0);
}

void check_shapes(Backend& backend, bool flagship, Report& report) {
  auto* device = backend::cuda::cuda_device(backend);
  std::uint64_t seed = 5;
  const auto check = [&](const std::string& name, std::initializer_list<std::int64_t> n,
                         std::int64_t k, bool gated = false) {
    std::vector<std::unique_ptr<Matrix>> weights;
    for (const std::int64_t rows : n) weights.push_back(device->synthetic_matrix(rows, k, ++seed));
    check_group(backend, name, weights, report, gated);
  };
  check("one block 128 x 64", {128}, 64);
  check("padded 200 x 192", {200}, 192);
  check("small group 128 + 64 + 64 x 128", {128, 64, 64}, 128);
  check("512 x 256", {512}, 256);
  check("gated 300 x 256", {300}, 256, true);
  if (!flagship) return;
  check("q + k + v sliding", {8192, 4096, 4096}, 5376);
  check("q + k full", {16384, 2048}, 5376);
  check("o sliding", {5376}, 8192);
  check("o full", {5376}, 16384);
  check("gate + up", {21504, 21504}, 5376);
  check("gated gate + up", {43008}, 5376, true);
  check("down", {5376}, 21504);
}

// The first ones are packed, the others as the checkpoint has them.
void check_formats(Backend& backend, Report& report) {
  using enum WeightFormat;
  for (const MatrixKind kind :
       {MatrixKind{kAffine, 8, 64}, MatrixKind{kAffine, 8, 32}, MatrixKind{kAffine, 8, 128},
        MatrixKind{kAffine, 4, 32}, MatrixKind{kAffine, 4, 64}, MatrixKind{kAffine, 4, 128},
        MatrixKind{kMxfp4, 4, 32}, MatrixKind{kMxfp8, 8, 32}, MatrixKind{kBF16},
        MatrixKind{kAffine, 6, 128}, MatrixKind{kNvfp4, 4, 16}, MatrixKind{kF16}}) {
    for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{200, 768}, {640, 5376}}) {
      std::vector<std::unique_ptr<Matrix>> weights;
      weights.push_back(std::move(backend.prepare(fixed_matrix(kind, n, k, 3))).value());
      check_group(backend,
                  matrix_kind_name(kind) + " " + std::to_string(n) + " x " + std::to_string(k),
                  weights, report);
    }
    auto gated =
        backend.prepare_gated(fixed_matrix(kind, 300, 1152, 7), fixed_matrix(kind, 300, 1152, 8));
    if (!gated.ok() || *gated == nullptr) continue;
    std::vector<std::unique_ptr<Matrix>> weights;
    weights.push_back(std::move(gated).value());
    check_group(backend, matrix_kind_name(kind) + " gated", weights, report, true);
  }
}

// What comes before attention, and attention: in a step of single tokens one kernel may do both.
void check_prepared(Backend& backend, Report& report) {
  struct Case {
    int num_heads, num_kv_heads, head_dim, window;
    bool stores;  // else keys and values are those of an earlier layer
  };
  const std::vector<std::int32_t> at = {0, 33, 290, 700};
  const auto tokens = static_cast<std::int64_t>(at.size());
  for (const Case& c :
       {Case{4, 2, 64, 0, true}, Case{4, 2, 64, 0, false}, Case{32, 16, 256, 1024, true},
        Case{32, 16, 256, 100, false}, Case{8, 1, 512, 0, true}, Case{40, 2, 32, 40, true}}) {
    const KvGeometry geometry{.num_kv_heads = c.num_kv_heads, .head_dim = c.head_dim};
    const std::vector<float> frequencies(static_cast<std::size_t>(c.head_dim / 2), 0.3f);
    const Tensor norm = backend.upload(fixed_activations({c.head_dim}, 3));
    std::vector<Tensor> outs, pages_after;
    for (const bool in_step : {false, true}) {
      std::vector<DevicePages> pages;
      pages.reserve(at.size());
      std::vector<KvRow> rows;
      for (std::size_t i = 0; i < at.size(); ++i) {
        pages.emplace_back(backend, geometry, 0, at[i] / 32 + 1);
        const Tensor past =
            on_card(backend, fixed_activations({at[i] + 1, c.num_kv_heads, c.head_dim}, 50 + i));
        const KvRow filled{0, at[i] + 1, 0, pages.back().view()};
        ops::kv_append(backend, past, past, geometry, {&filled, 1});
        rows.push_back({static_cast<int>(i), 1, at[i], pages.back().view()});
      }
      const std::uint64_t model = new_model_number();
      const Tensor q = on_card(backend, fixed_activations({tokens, c.num_heads, c.head_dim}, 7));
      const Shape kv_shape{tokens, c.num_kv_heads, c.head_dim};
      const Tensor k = c.stores ? on_card(backend, fixed_activations(kv_shape, 8)) : Tensor();
      const Tensor v = c.stores ? on_card(backend, fixed_activations(kv_shape, 9)) : Tensor();
      for (int round = 0; round < (in_step ? 3 : 1); ++round) {  // as it comes, recorded, replayed
        if (in_step) backend.begin_step({.model = model, .rows = rows, .num_wanted = 1});
        ops::attention_inputs(backend, {.q = q,
                                        .k = k,
                                        .v = v,
                                        .q_norm = norm,
                                        .k_norm = c.stores ? norm : Tensor(),
                                        .eps = 1e-6f,
                                        .positions = at,
                                        .inverse_frequencies = frequencies,
                                        .geometry = geometry,
                                        .rows = rows,
                                        .window = c.window});
        const Tensor out = ops::attention(backend, q, geometry, rows, c.window, 0.1f);
        if (in_step) backend.end_step();
        outs.push_back(backend.to_host(out));
        if (round > 0) continue;
        for (const DevicePages& p : pages) {
          const auto bytes = static_cast<std::int64_t>(p.memory->size());
          pages_after.push_back(backend.to_host(Tensor(p.memory, 0, Shape{bytes}, DType::kU8)));
        }
      }
    }
    bool same = true;
    for (const Tensor& out : outs) same = same && same_bytes(out, outs[0]);
    for (std::size_t i = 0; i < at.size(); ++i) {
      same = same && same_bytes(pages_after[i], pages_after[i + at.size()]);
    }
    const std::string name = "attention with its inputs, heads of " + std::to_string(c.head_dim) +
                             (c.stores ? "" : ", none stored");
    std::printf("  %-46s %s\n", name.c_str(), same ? "same" : "differs");
    report.expect(name, same);
  }
}

void check_repeats(Backend& backend, Report& report) {
  auto* device = backend::cuda::cuda_device(backend);
  constexpr int kRounds = 1000;
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{5376, 21504}, {8192, 5376}}) {
    const auto weight = device->synthetic_matrix(n, k, 3);
    for (const std::int64_t m : {1, 16, 40, 300}) {
      const Tensor x = on_card(backend, fixed_activations({m, k}, 4));
      const Tensor first = backend.to_host(ops::linear(backend, *weight, x));
      int drifts = 0;
      const int rounds = m > 128 ? kRounds / 10 : kRounds;
      for (int i = 0; i < rounds; ++i) {
        // Read back now and then; the others load the card meanwhile.
        const Tensor out = ops::linear(backend, *weight, x);
        if (i % 10 == 9) drifts += same_bytes(backend.to_host(out), first) ? 0 : 1;
      }
      const std::string name = "repeats " + std::to_string(n) + " x " + std::to_string(k) + ", " +
                               std::to_string(m) + " rows";
      std::printf("  %-46s %d rounds, %d of %d read back drift\n", name.c_str(), rounds, drifts,
                  rounds / 10);
      report.expect(name, drifts == 0);
    }
  }
}

}  // namespace

int check_bits(Backend& backend, bool flagship_shapes) {
  std::printf("bits of a row alone and among others\n");
  Report report;
  check_shapes(backend, flagship_shapes, report);
  check_formats(backend, report);
  check_prepared(backend, report);
  if (flagship_shapes) check_repeats(backend, report);
  return report.failures();
}

}  // namespace flotilla::cuda_check
