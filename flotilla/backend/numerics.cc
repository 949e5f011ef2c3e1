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

// Runs every operation on fixed inputs. Prepared once, so that a stress run spends its time in
// kernels.
class Suite {
 public:
  using Sink = std::function<void(std::string_view operation, std::span<const float> output)>;

  explicit Suite(Backend& backend);
  void run(const Sink& sink);

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
  void run_elementwise(const Sink& sink);
  void run_attention(const Sink& sink, const KvGeometry& geometry, int num_heads, int window);
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

void Suite::run_attention(const Sink& sink, const KvGeometry& geometry, int num_heads, int window) {
  const FixedKv kv(geometry, 0, 4, 55);
  const auto tokens = static_cast<std::int64_t>(kRows);
  const std::array<KvRow, 2> rows = {
      KvRow{.first_row = 0, .num_tokens = 5, .first_position = 60, .kv = kv.view()},
      KvRow{.first_row = 5, .num_tokens = 4, .first_position = 120, .kv = kv.view()}};
  const Shape kv_shape{tokens, geometry.num_kv_heads, geometry.head_dim};
  backend_.kv_append({.k = fixed_activations(kv_shape, 21),
                      .v = fixed_activations(kv_shape, 22),
                      .geometry = geometry,
                      .rows = rows});
  const Tensor q = fixed_activations({tokens, num_heads, geometry.head_dim}, 23);
  const Tensor out = backend_.allocate(q.shape(), DType::kF32);
  backend_.attention(
      {.q = q, .geometry = geometry, .rows = rows, .window = window, .scale = 0.125f, .out = out});
  emit(sink, window == 0 ? "attention" : "window attention", out);
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
  run_elementwise(sink);
  run_attention(sink, {.num_kv_heads = 2, .head_dim = 40}, 6, 0);
  run_attention(sink, {.num_kv_heads = 1, .head_dim = 64}, 4, 50);
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
  return report;
}

}  // namespace flotilla::backend
