#include "flotilla/backend/numerics.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>

#include "flotilla/backend/cpu/math.h"
#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::backend {
namespace {

using tensor::DType;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.num_bytes() == b.num_bytes() && std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0;
}

// Runs every operation on fixed inputs. Prepared once, so that a stress run spends its time in
// kernels.
class Suite {
 public:
  using Sink = std::function<void(std::string_view operation, std::span<const float> output)>;

  explicit Suite(Backend& backend);
  void run(const Sink& sink);
  // The operations whose rows change when other rows are computed beside them.
  std::vector<std::string> row_dependent();

 private:
  struct Weight {
    std::string name;
    std::unique_ptr<Matrix> matrix;
  };
  Tensor copy(const Tensor& from);
  void emit(const Sink& sink, std::string_view name, const Tensor& t) {
    sink(name, {t.data<float>(), static_cast<std::size_t>(t.shape().num_elements())});
  }
  void run_linears(const Sink& sink);
  void run_linear_group(const Sink& sink);
  void run_elementwise(const Sink& sink);
  struct AttentionCase {
    std::string name;
    KvGeometry geometry;
    int num_heads = 0;
    int window = 0;
    std::array<int, 2> counts;     // tokens of two sequences, kRows in all
    std::array<int, 2> positions;  // of their first ones
  };
  static std::vector<AttentionCase> attention_cases();
  void run_attention(const Sink& sink, const AttentionCase& c);
  bool attention_depends(const AttentionCase& c);
  void run_functions(const Sink& sink);

  static constexpr std::int64_t kN = 40, kK = 384, kRows = 9;
  Backend& backend_;
  std::vector<Weight> weights_;
  Tensor x_, y_, norm_weight_;
};

Suite::Suite(Backend& backend) : backend_(backend) {
  std::uint64_t seed = 1;
  for (const MatrixKind& kind : all_matrix_kinds()) {
    // The K of a dense matrix need not be a multiple of anything.
    const std::int64_t k = kind.group_size == 0 ? kK - 3 : kK;
    auto matrix = backend.prepare(fixed_matrix(kind, kN, k, seed++));
    if (matrix.ok()) weights_.push_back({matrix_kind_name(kind), std::move(matrix).value()});
  }
  x_ = copy(fixed_activations({kRows, kK}, 1001));
  y_ = copy(fixed_activations({kRows, kK}, 1002));
  norm_weight_ = copy(fixed_activations({kK}, 1003));
}

Tensor Suite::copy(const Tensor& from) {
  Tensor to = backend_.allocate(from.shape(), from.dtype());
  std::memcpy(to.bytes(), from.bytes(), from.num_bytes());
  return to;
}

void Suite::run_linears(const Sink& sink) {
  constexpr std::array<TokenId, 3> kIds = {0, kN - 1, 17};
  for (const Weight& w : weights_) {
    const Tensor x = fixed_activations({kRows, w.matrix->k()}, 7);
    for (const std::int64_t rows : {std::int64_t{1}, kRows}) {
      const Tensor out = backend_.allocate({rows, kN}, DType::kF32);
      backend_.linear({.weight = w.matrix.get(), .x = x.rows(0, rows), .out = out});
      emit(sink, "linear " + w.name, out);
    }
    const Tensor out = backend_.allocate({kIds.size(), w.matrix->k()}, DType::kF32);
    backend_.embedding({.table = w.matrix.get(), .ids = kIds, .scale = 1.5f, .out = out});
    emit(sink, "embedding " + w.name, out);
  }
}

void Suite::run_elementwise(const Sink& sink) {
  const Tensor out = backend_.allocate({kRows, kK}, DType::kF32);
  backend_.rms_norm({.x = x_, .weight = norm_weight_, .eps = 1e-6f, .out = out});
  emit(sink, "rms_norm", out);
  backend_.rms_norm({.x = x_, .weight = {}, .eps = 1e-6f, .out = out});
  emit(sink, "rms_norm without weight", out);
  const Tensor residual = copy(y_);
  backend_.norm_add(
      {.x = x_, .weight = norm_weight_, .eps = 1e-6f, .scale = 0.7f, .residual = residual});
  emit(sink, "norm_add", residual);
  backend_.gelu_mul({.gate = x_, .up = y_, .out = out});
  emit(sink, "gelu_mul", out);
  const Tensor capped = copy(x_);
  backend_.softcap({.x = capped, .cap = 3.0f});
  emit(sink, "softcap", capped);

  constexpr std::array<std::int32_t, kRows> kPositions = {0,    1,     2,      31,    1000,
                                                          4097, 65535, 131071, 262143};
  std::array<float, 32> frequencies{};
  float f = 1.0f;
  for (std::size_t i = 0; i < 24; ++i, f *= 0.65f) frequencies[i] = f;
  const Tensor rotated = copy(x_.reshape({kRows, 6, 64}));
  backend_.rope({.x = rotated, .positions = kPositions, .inverse_frequencies = frequencies});
  emit(sink, "rope", rotated);
}

// Every weight of one K at once, as q, k and v or gate and up are.
void Suite::run_linear_group(const Sink& sink) {
  std::vector<const Matrix*> matrices;
  for (const Weight& w : weights_) {
    if (w.matrix->k() == kK && matrices.size() < 3) matrices.push_back(w.matrix.get());
  }
  for (const std::int64_t rows : {std::int64_t{1}, kRows}) {
    std::vector<Tensor> outs;
    for (const Matrix* matrix : matrices) {
      outs.push_back(backend_.allocate({rows, matrix->n()}, DType::kF32));
    }
    backend_.linear_group({.weights = matrices, .x = x_.rows(0, rows), .outs = outs});
    for (const Tensor& out : outs) emit(sink, "linear_group", out);
  }
}

std::vector<Suite::AttentionCase> Suite::attention_cases() {
  const KvGeometry narrow{.num_kv_heads = 2, .head_dim = 40};
  const KvGeometry wide{.num_kv_heads = 1, .head_dim = 64};
  const int last = static_cast<int>(kRows) - 1;
  return {{"attention", narrow, 6, 0, {5, 4}, {60, 120}},
          {"window attention", wide, 4, 50, {5, 4}, {60, 120}},
          {"attention of one token", narrow, 6, 0, {1, last}, {127, 32}},
          {"window attention of one token", wide, 4, 50, {1, last}, {127, 32}}};
}

void Suite::run_attention(const Sink& sink, const AttentionCase& c) {
  const FixedKv kv(c.geometry, 0, 4, 55);
  const auto tokens = static_cast<std::int64_t>(kRows);
  const std::array<KvRow, 2> rows = {KvRow{.first_row = 0,
                                           .num_tokens = c.counts[0],
                                           .first_position = c.positions[0],
                                           .kv = kv.view()},
                                     KvRow{.first_row = c.counts[0],
                                           .num_tokens = c.counts[1],
                                           .first_position = c.positions[1],
                                           .kv = kv.view()}};
  const Shape kv_shape{tokens, c.geometry.num_kv_heads, c.geometry.head_dim};
  backend_.kv_append({.k = fixed_activations(kv_shape, 21),
                      .v = fixed_activations(kv_shape, 22),
                      .geometry = c.geometry,
                      .rows = rows});
  for (int block = 0; block < kv.view().num_blocks; ++block) {
    sink("kv_append", {kv.view().pages[block], tensor::kv_page_floats(c.geometry)});
  }
  const Tensor q = fixed_activations({tokens, c.num_heads, c.geometry.head_dim}, 23);
  const Tensor out = backend_.allocate(q.shape(), DType::kF32);
  backend_.attention({.q = q,
                      .geometry = c.geometry,
                      .rows = rows,
                      .window = c.window,
                      .scale = 0.125f,
                      .out = out});
  emit(sink, c.name, out);
}

// The tokens of one sequence together, and one by one.
bool Suite::attention_depends(const AttentionCase& c) {
  const FixedKv kv(c.geometry, 0, 4, 55);
  const Tensor q = fixed_activations({kRows, c.num_heads, c.geometry.head_dim}, 23);
  const auto run = [&](std::int64_t first, std::int64_t count) {
    const KvRow row{.first_row = 0,
                    .num_tokens = static_cast<int>(count),
                    .first_position = 90 + static_cast<int>(first),
                    .kv = kv.view()};
    const Tensor part = q.rows(first, first + count);
    const Tensor out = backend_.allocate(part.shape(), DType::kF32);
    backend_.attention({.q = part,
                        .geometry = c.geometry,
                        .rows = std::span(&row, 1),
                        .window = c.window,
                        .scale = 0.125f,
                        .out = out});
    return out;
  };
  const Tensor together = run(0, kRows);
  for (std::int64_t r = 0; r < kRows; ++r) {
    if (!same_bits(run(r, 1), together.rows(r, r + 1))) return true;
  }
  return false;
}

std::vector<std::string> Suite::row_dependent() {
  constexpr std::array<std::int64_t, 8> kCounts = {2, 3, 4, 6, 8, 16, 33, 70};
  std::vector<std::string> found;
  for (const Weight& w : weights_) {
    const Tensor x = fixed_activations({kCounts.back(), w.matrix->k()}, 7);
    const auto run = [&](std::int64_t first, std::int64_t count) {
      const Tensor out = backend_.allocate({count, kN}, DType::kF32);
      backend_.linear({.weight = w.matrix.get(), .x = x.rows(first, first + count), .out = out});
      return out;
    };
    const bool depends = std::any_of(kCounts.begin(), kCounts.end(), [&](std::int64_t count) {
      const Tensor together = run(0, count);
      return !same_bits(run(0, 1), together.rows(0, 1)) ||
             !same_bits(run(count - 1, 1), together.rows(count - 1, count));
    });
    if (depends) found.push_back("linear " + w.name);
  }
  const Tensor together = backend_.allocate({kRows, kK}, DType::kF32);
  const Tensor alone = backend_.allocate({1, kK}, DType::kF32);
  backend_.rms_norm({.x = x_, .weight = norm_weight_, .eps = 1e-6f, .out = together});
  for (std::int64_t r = 0; r < kRows; ++r) {
    backend_.rms_norm({.x = x_.rows(r, r + 1), .weight = norm_weight_, .eps = 1e-6f, .out = alone});
    if (!same_bits(alone, together.rows(r, r + 1))) {
      found.emplace_back("rms_norm");
      break;
    }
  }
  for (const AttentionCase& c : attention_cases()) {
    if (attention_depends(c)) found.push_back(c.name);
  }
  return found;
}

// What sampling uses.
void Suite::run_functions(const Sink& sink) {
  std::array<float, 256> x{}, y{};
  FixedRandom random(31);
  for (float& v : x) v = random.normal() * 30.0f;
  exp_array(x, y);
  sink("exp", y);
  tanh_array(x, y);
  sink("tanh", y);
  for (float& v : x) v = std::max(v * v, 1e-30f);
  log_array(x, y);
  sink("log", y);
  y[0] = sum_array(x);
  y[1] = max_array(x);
  sink("sum", y);
}

void Suite::run(const Sink& sink) {
  run_linears(sink);
  run_linear_group(sink);
  run_elementwise(sink);
  for (const AttentionCase& c : attention_cases()) run_attention(sink, c);
  run_functions(sink);
}

struct DigestDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

std::string numerics_id(Backend& backend) {
  const std::unique_ptr<EVP_MD_CTX, DigestDeleter> digest(EVP_MD_CTX_new());
  FLOTILLA_CHECK(digest != nullptr && EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) == 1,
                 "SHA-256 is not available");
  const auto add = [&](const void* data, std::size_t bytes) {
    FLOTILLA_CHECK(EVP_DigestUpdate(digest.get(), data, bytes) == 1, "SHA-256 failed");
  };
  const std::string header = "flotilla numerics, kernels " + std::to_string(kKernelAbiVersion) +
                             ", partition " + std::to_string(kPartitionVersion) + "\n";
  add(header.data(), header.size());
  Suite(backend).run([&](std::string_view name, std::span<const float> output) {
    add(name.data(), name.size());
    add(output.data(), output.size_bytes());
  });
  std::array<unsigned char, 32> hash{};
  FLOTILLA_CHECK(EVP_DigestFinal_ex(digest.get(), hash.data(), nullptr) == 1, "SHA-256 failed");
  std::string text;
  for (const unsigned char byte : hash) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

StressReport op_stress(Backend& backend, int rounds) {
  StressReport report{.rounds = rounds};
  Suite suite(backend);
  std::vector<std::vector<float>> first;
  suite.run([&](std::string_view, std::span<const float> output) {
    first.emplace_back(output.begin(), output.end());
  });
  for (int round = 0; round < rounds; ++round) {
    std::size_t i = 0;
    suite.run([&](std::string_view name, std::span<const float> output) {
      report.outputs += static_cast<std::int64_t>(output.size());
      const std::vector<float>& expected = first[i++];
      if (std::memcmp(expected.data(), output.data(), output.size_bytes()) == 0) return;
      if (std::find(report.drifting.begin(), report.drifting.end(), name) ==
          report.drifting.end()) {
        report.drifting.emplace_back(name);
      }
    });
  }
  report.row_dependent = suite.row_dependent();
  return report;
}

Result<std::string> check_numerics(const CpuOptions& options, int rounds) {
  std::string id;
  const auto check = [&](const CpuOptions& what) -> Status {
    FLOTILLA_TRY(const auto backend, make_cpu_backend(what));
    const std::string device = backend->capabilities().device;
    const std::string own = numerics_id(*backend);
    if (id.empty()) id = own;
    if (own != id) {
      return Error{ErrorCode::kModelFault, "the kernels of '" + device + "' give other bits (" +
                                               own + ") than the definition (" + id + ")"};
    }
    const StressReport report = op_stress(*backend, rounds);
    for (const auto* names : {&report.drifting, &report.row_dependent}) {
      if (names->empty()) continue;
      return Error{ErrorCode::kModelFault,
                   "the kernels of '" + device + "' " +
                       (names == &report.drifting ? "drift from run to run"
                                                  : "depend on the other rows of a batch") +
                       ": " + names->front()};
    }
    return ok_status();
  };
  CpuOptions what = options;
  what.target = CpuTarget::kScalar;
  what.num_threads = 1;
  FLOTILLA_TRY_STATUS(check(what));
  what.target = options.target;
  for (const int threads : {1, options.num_threads}) {
    what.num_threads = threads;
    FLOTILLA_TRY_STATUS(check(what));
  }
  return id;
}

}  // namespace flotilla::backend
