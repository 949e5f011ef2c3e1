#include "flotilla/backend/numerics.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>

#include "flotilla/backend/cpu/math.h"
#include "flotilla/backend/device_error.h"
#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::backend {
namespace {

using tensor::DType;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.num_bytes() == b.num_bytes() && std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0;
}

// Runs every operation on fixed inputs. Prepared once, so that a stress run spends its time in
// kernels. Works through the backend's own memory and type of activations.
class Suite {
 public:
  using Sink = std::function<void(std::string_view operation, std::span<const std::byte> output)>;

  explicit Suite(Backend& backend);
  void run(const Sink& sink);
  // The operations whose rows change when other rows are computed beside them.
  std::vector<std::string> row_dependent();

 private:
  struct Weight {
    std::string name;
    std::unique_ptr<Matrix> matrix;
  };
  struct AttentionCase {
    std::string name;
    KvGeometry geometry;
    int num_heads = 0;
    int window = 0;
    std::array<int, 2> counts;     // tokens of two sequences, kRows in all
    std::array<int, 2> positions;  // of their first ones
  };
  // The pages of a sequence with made-up keys and values.
  struct Pages {
    std::shared_ptr<void> owner;
    KvView view;
    Tensor bytes;  // all pages, where the backend keeps them
  };

  Tensor weight(const Shape& shape, std::uint64_t seed);      // float32
  Tensor activation(const Shape& shape, std::uint64_t seed);  // a fresh one
  Tensor output(const Shape& shape) {
    return backend_.allocate(shape, backend_.activation_dtype());
  }
  Pages pages(const KvGeometry& geometry, int num_blocks);
  void emit(const Sink& sink, std::string_view name, const Tensor& t) {
    const Tensor host = backend_.to_host(t);
    sink(name, {host.bytes(), host.num_bytes()});
  }
  bool same(const Tensor& a, const Tensor& b) {
    return same_bits(backend_.to_host(a), backend_.to_host(b));
  }
  void run_linears(const Sink& sink);
  void run_linear_group(const Sink& sink);
  void run_linear_gated(const Sink& sink);
  void run_elementwise(const Sink& sink);
  std::vector<AttentionCase> attention_cases() const;
  void run_attention(const Sink& sink, const AttentionCase& c);
  bool attention_depends(const AttentionCase& c);
  void run_functions(const Sink& sink);

  static constexpr std::int64_t kN = 40, kK = 384, kRows = 9;
  static constexpr int kBlocks = 4;
  Backend& backend_;
  std::vector<Weight> weights_;
  std::unique_ptr<Matrix> gated_;  // null where the backend has no such product
  Tensor norm_weight_;
};

Suite::Suite(Backend& backend) : backend_(backend) {
  std::uint64_t seed = 1;
  for (const MatrixKind& kind : all_matrix_kinds()) {
    // The K of a dense matrix need not be a multiple of anything.
    const std::int64_t k = kind.group_size == 0 ? kK - 3 : kK;
    auto matrix = backend.prepare(fixed_matrix(kind, kN, k, seed++));
    if (matrix.ok()) weights_.push_back({matrix_kind_name(kind), std::move(matrix).value()});
  }
  norm_weight_ = weight({kK}, 1003);
  constexpr MatrixKind kUsual{.format = WeightFormat::kAffine, .bits = 4, .group_size = 64};
  auto gated =
      backend.prepare_gated(fixed_matrix(kUsual, kN, kK, 91), fixed_matrix(kUsual, kN, kK, 92));
  if (gated.ok()) gated_ = std::move(gated).value();
}

Tensor Suite::weight(const Shape& shape, std::uint64_t seed) {
  return backend_.upload(fixed_activations(shape, seed));
}

Tensor Suite::activation(const Shape& shape, std::uint64_t seed) {
  const Tensor values = fixed_activations(shape, seed);
  if (backend_.activation_dtype() == DType::kF32) return backend_.upload(values);
  Tensor rounded(tensor::make_host_buffer(values.num_bytes() / 2), 0, shape, DType::kBF16);
  for (std::int64_t i = 0; i < shape.num_elements(); ++i) {
    rounded.data<std::uint16_t>()[i] = tensor::f32_to_bf16(values.data<float>()[i]);
  }
  return backend_.upload(rounded);
}

Suite::Pages Suite::pages(const KvGeometry& geometry, int num_blocks) {
  PageDevice* device = backend_.page_device();
  if (device == nullptr) {
    const auto kv = std::make_shared<FixedKv>(geometry, 0, num_blocks, 55);
    const Shape shape{num_blocks, static_cast<std::int64_t>(tensor::kv_page_floats(geometry))};
    return {kv, kv->view(), kv->storage().reshape(shape)};
  }
  struct Owner {
    std::shared_ptr<tensor::Buffer> memory;
    std::vector<float*> pages;
  };
  const auto owner = std::make_shared<Owner>();
  KvGeometry stored = geometry;
  stored.element_bytes = backend_.kv_element_bytes();
  const std::size_t page = kv_page_bytes(stored);
  auto memory = device->allocate_pages(page * static_cast<std::size_t>(num_blocks));
  if (!memory.ok()) throw DeviceError(memory.error().message);
  owner->memory = std::move(memory).value();
  for (int b = 0; b < num_blocks; ++b) {
    owner->pages.push_back(
        reinterpret_cast<float*>(owner->memory->data() + static_cast<std::size_t>(b) * page));
  }
  const KvView view{owner->pages.data(), 0, num_blocks};
  const int tokens = num_blocks * tensor::kKvBlock;
  const Shape shape{tokens, geometry.num_kv_heads, geometry.head_dim};
  const KvRow row{.num_tokens = tokens, .kv = view};
  backend_.kv_append({.k = activation(shape, 56),
                      .v = activation(shape, 57),
                      .geometry = geometry,
                      .rows = std::span(&row, 1)});
  const auto bytes = static_cast<std::int64_t>(owner->memory->size());
  return {owner, view, Tensor(owner->memory, 0, {num_blocks, bytes / num_blocks}, DType::kU8)};
}

void Suite::run_linears(const Sink& sink) {
  constexpr std::array<TokenId, 3> kIds = {0, kN - 1, 17};
  for (const Weight& w : weights_) {
    const Tensor x = activation({kRows, w.matrix->k()}, 7);
    for (const std::int64_t rows : {std::int64_t{1}, kRows}) {
      const Tensor out = backend_.allocate({rows, kN}, DType::kF32);
      backend_.linear({.weight = w.matrix.get(), .x = x.rows(0, rows), .out = out});
      emit(sink, "linear " + w.name, out);
    }
    const Tensor out = output({kIds.size(), w.matrix->k()});
    backend_.embedding({.table = w.matrix.get(), .ids = kIds, .scale = 1.5f, .out = out});
    emit(sink, "embedding " + w.name, out);
  }
}

void Suite::run_elementwise(const Sink& sink) {
  const Shape shape{kRows, kK};
  const Tensor x = activation(shape, 1001), y = activation(shape, 1002), out = output(shape);
  backend_.rms_norm({.x = x, .weight = norm_weight_, .eps = 1e-6f, .out = out});
  emit(sink, "rms_norm", out);
  backend_.rms_norm({.x = x, .weight = {}, .eps = 1e-6f, .out = out});
  emit(sink, "rms_norm without weight", out);
  const Tensor residual = weight(shape, 1002);
  backend_.norm_add(
      {.x = x, .weight = norm_weight_, .eps = 1e-6f, .scale = 0.7f, .residual = residual});
  emit(sink, "norm_add", residual);
  backend_.gelu_mul({.gate = x, .up = y, .out = out});
  emit(sink, "gelu_mul", out);
  const Tensor capped = weight(shape, 1001);
  backend_.softcap({.x = capped, .cap = 3.0f});
  emit(sink, "softcap", capped);

  constexpr std::array<std::int32_t, kRows> kPositions = {0,    1,     2,      31,    1000,
                                                          4097, 65535, 131071, 262143};
  std::array<float, 32> frequencies{};
  float f = 1.0f;
  for (std::size_t i = 0; i < 24; ++i, f *= 0.65f) frequencies[i] = f;
  const Tensor rotated = activation(shape, 1001).reshape({kRows, 6, 64});
  backend_.rope({.x = rotated, .positions = kPositions, .inverse_frequencies = frequencies});
  emit(sink, "rope", rotated);
}

// Every weight of one K at once, as q, k and v or gate and up are.
void Suite::run_linear_group(const Sink& sink) {
  std::vector<const Matrix*> matrices;
  for (const Weight& w : weights_) {
    if (w.matrix->k() == kK && matrices.size() < 3) matrices.push_back(w.matrix.get());
  }
  const Tensor x = activation({kRows, kK}, 1001);
  for (const std::int64_t rows : {std::int64_t{1}, kRows}) {
    std::vector<Tensor> outs;
    for (const Matrix* matrix : matrices) {
      outs.push_back(backend_.allocate({rows, matrix->n()}, DType::kF32));
    }
    backend_.linear_group({.weights = matrices, .x = x.rows(0, rows), .outs = outs});
    for (const Tensor& out : outs) emit(sink, "linear_group", out);
  }
}

void Suite::run_linear_gated(const Sink& sink) {
  if (gated_ == nullptr) return;
  const Tensor x = activation({kRows, kK}, 1001);
  for (const std::int64_t rows : {std::int64_t{1}, kRows}) {
    const Tensor out = output({rows, kN});
    backend_.linear_gated({.weight = gated_.get(), .x = x.rows(0, rows), .out = out});
    emit(sink, "linear_gated", out);
  }
}

std::vector<Suite::AttentionCase> Suite::attention_cases() const {
  // Where any size goes, one that is not a multiple of a vector.
  const std::vector<int> dims = backend_.capabilities().head_dims;
  const KvGeometry narrow{.num_kv_heads = 2, .head_dim = dims.empty() ? 40 : dims.front()};
  const KvGeometry wide{.num_kv_heads = 1, .head_dim = dims.empty() ? 64 : dims.back()};
  const int last = static_cast<int>(kRows) - 1;
  return {{"attention", narrow, 6, 0, {5, 4}, {60, 120}},
          {"window attention", wide, 4, 50, {5, 4}, {60, 120}},
          {"attention of one token", narrow, 6, 0, {1, last}, {127, 32}},
          {"window attention of one token", wide, 4, 50, {1, last}, {127, 32}}};
}

void Suite::run_attention(const Sink& sink, const AttentionCase& c) {
  const Pages kv = pages(c.geometry, kBlocks);
  const auto tokens = static_cast<std::int64_t>(kRows);
  const std::array<KvRow, 2> rows = {KvRow{.first_row = 0,
                                           .num_tokens = c.counts[0],
                                           .first_position = c.positions[0],
                                           .kv = kv.view},
                                     KvRow{.first_row = c.counts[0],
                                           .num_tokens = c.counts[1],
                                           .first_position = c.positions[1],
                                           .kv = kv.view}};
  const Shape kv_shape{tokens, c.geometry.num_kv_heads, c.geometry.head_dim};
  backend_.kv_append({.k = activation(kv_shape, 21),
                      .v = activation(kv_shape, 22),
                      .geometry = c.geometry,
                      .rows = rows});
  for (int block = 0; block < kBlocks; ++block) {
    emit(sink, "kv_append", kv.bytes.rows(block, block + 1));
  }
  const Tensor q = activation({tokens, c.num_heads, c.geometry.head_dim}, 23);
  const Tensor out = output(q.shape());
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
  const Pages kv = pages(c.geometry, kBlocks);
  const Tensor q = activation({kRows, c.num_heads, c.geometry.head_dim}, 23);
  const auto run = [&](std::int64_t first, std::int64_t count) {
    const KvRow row{.first_row = 0,
                    .num_tokens = static_cast<int>(count),
                    .first_position = 90 + static_cast<int>(first),
                    .kv = kv.view};
    const Tensor part = q.rows(first, first + count);
    const Tensor out = output(part.shape());
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
    if (!same(run(r, 1), together.rows(r, r + 1))) return true;
  }
  return false;
}

std::vector<std::string> Suite::row_dependent() {
  constexpr std::array<std::int64_t, 8> kCounts = {2, 3, 4, 6, 8, 16, 33, 70};
  std::vector<std::string> found;
  for (const Weight& w : weights_) {
    const Tensor x = activation({kCounts.back(), w.matrix->k()}, 7);
    const auto run = [&](std::int64_t first, std::int64_t count) {
      const Tensor out = backend_.allocate({count, kN}, DType::kF32);
      backend_.linear({.weight = w.matrix.get(), .x = x.rows(first, first + count), .out = out});
      return out;
    };
    const bool depends = std::any_of(kCounts.begin(), kCounts.end(), [&](std::int64_t count) {
      const Tensor together = run(0, count);
      return !same(run(0, 1), together.rows(0, 1)) ||
             !same(run(count - 1, 1), together.rows(count - 1, count));
    });
    if (depends) found.push_back("linear " + w.name);
  }
  const Tensor x = activation({kRows, kK}, 1001);
  const Tensor together = output({kRows, kK});
  const Tensor alone = output({1, kK});
  backend_.rms_norm({.x = x, .weight = norm_weight_, .eps = 1e-6f, .out = together});
  for (std::int64_t r = 0; r < kRows; ++r) {
    backend_.rms_norm({.x = x.rows(r, r + 1), .weight = norm_weight_, .eps = 1e-6f, .out = alone});
    if (!same(alone, together.rows(r, r + 1))) {
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
  const auto give = [&](std::string_view name) { sink(name, std::as_bytes(std::span(y))); };
  FixedRandom random(31);
  for (float& v : x) v = random.normal() * 30.0f;
  exp_array(x, y);
  give("exp");
  tanh_array(x, y);
  give("tanh");
  for (float& v : x) v = std::max(v * v, 1e-30f);
  log_array(x, y);
  give("log");
  y[0] = sum_array(x);
  y[1] = max_array(x);
  give("sum");
}

void Suite::run(const Sink& sink) {
  run_linears(sink);
  run_linear_group(sink);
  run_linear_gated(sink);
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
  Suite(backend).run([&](std::string_view name, std::span<const std::byte> output) {
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
  const auto activation_bytes =
      static_cast<std::int64_t>(tensor::dtype_bytes(backend.activation_dtype()));
  Suite suite(backend);
  std::vector<std::vector<std::byte>> first;
  suite.run([&](std::string_view, std::span<const std::byte> output) {
    first.emplace_back(output.begin(), output.end());
  });
  for (int round = 0; round < rounds; ++round) {
    std::size_t i = 0;
    suite.run([&](std::string_view name, std::span<const std::byte> output) {
      report.outputs += static_cast<std::int64_t>(output.size()) / activation_bytes;
      const std::vector<std::byte>& expected = first[i++];
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

namespace {

// The id, unless a kernel drifts.
Result<std::string> check_backend(Backend& backend, int rounds) {
  const std::string device = backend.capabilities().device;
  std::string id = numerics_id(backend);
  const StressReport report = op_stress(backend, rounds);
  for (const auto* names : {&report.drifting, &report.row_dependent}) {
    if (names->empty()) continue;
    return Error{ErrorCode::kModelFault,
                 "the kernels of '" + device + "' " +
                     (names == &report.drifting ? "drift from run to run"
                                                : "depend on the other rows of a batch") +
                     ": " + names->front()};
  }
  return id;
}

}  // namespace

Result<std::string> check_numerics(Backend& backend, int rounds) {
  try {
    return check_backend(backend, rounds);
  } catch (const DeviceError& error) {
    return Error{ErrorCode::kUnavailable, error.what()};
  }
}

Result<std::string> check_numerics(const CpuOptions& options, int rounds) {
  std::string id;
  const auto check = [&](const CpuOptions& what) -> Status {
    FLOTILLA_TRY(const auto backend, make_cpu_backend(what));
    FLOTILLA_TRY(const std::string own, check_backend(*backend, rounds));
    if (id.empty()) id = own;
    if (own != id) {
      return Error{ErrorCode::kModelFault, "the kernels of '" + backend->capabilities().device +
                                               "' give other bits (" + own +
                                               ") than the definition (" + id + ")"};
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
