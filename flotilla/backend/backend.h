// One interface for every device: memory, then one virtual per operation with an argument struct.
// Kernels trust their arguments: `ops/` has checked shapes and types. All operations obey the
// bit-contract: the bits of one output element depend on the operation, the weight and the inputs
// of that element alone, never on the number of rows, the tile, or the thread count. Activations
// are of Backend::activation_dtype(); the residual stream and weights of norms are float32. Tensors
// live where the backend computes: see upload() and to_host(). One caller at a time per backend
// (the engine thread). Operations of a backend on a device may throw DeviceError, now or at a later
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flotilla/backend/shortlist.h"
#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/tensor/kv_layout.h"
#include "flotilla/tensor/tensor.h"

namespace flotilla::backend {

using tensor::KvGeometry;
using tensor::KvView;
using tensor::Shape;
using tensor::Tensor;

// How the elements of a stored matrix are coded (MLX formats).
enum class WeightFormat { kF32, kF16, kBF16, kAffine, kMxfp4, kMxfp8, kNvfp4 };

// A matrix [n, k] as the checkpoint stores it: row n is one output. Views; the buffers stay alive
// with the tensors.
struct StoredMatrix {
  WeightFormat format = WeightFormat::kF32;
  int bits = 0;        // affine only: 2, 3, 4, 5, 6, 8
  int group_size = 0;  // quantised formats
  std::int64_t n = 0;
  std::int64_t k = 0;
  Tensor weight = {};  // [n, k] or uint32 [n, k * bits / 32]
  Tensor scales = {};  // quantised formats: [n, k / group_size]
  Tensor biases = {};  // affine: same shape and type as scales
};

// A matrix ready for linear() and embedding(): made once at load by Backend::prepare, const
// afterwards.
class Matrix {
 public:
  virtual ~Matrix() = default;
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  virtual std::size_t resident_bytes() const = 0;

 protected:
  Matrix(std::int64_t n, std::int64_t k) : n_(n), k_(k) {}
  std::int64_t n_, k_;
};

// out[t, :] = scale * table[ids[t], :]
struct EmbeddingArgs {
  const Matrix* table;
  std::span<const TokenId> ids;
  float scale = 1.0f;
  Tensor out;  // [num_tokens, k]
  // Not empty: token i is what the last argmax() gave for its row chosen[i], and ids are ignored.
  // Only where Capabilities::chooses_tokens.
  std::span<const std::int32_t> chosen = {};
};

// out = x * W^T; x [m, k], out [m, n]
struct LinearArgs {
  const Matrix* weight;
  Tensor x;
  Tensor out;
};

// Several matrices applied to the same x: q, k, v or gate, up.
struct LinearGroupArgs {
  std::span<const Matrix* const> weights;
  Tensor x;
  std::span<const Tensor> outs;
};

// out = x * (mean(x^2) + eps)^(-1/2) * weight; `weight` may be empty. x [rows, dim]; out may be x.
struct RmsNormArgs {
  Tensor x;
  Tensor weight;  // [dim] float32, or empty
  float eps;
  Tensor out;
};

// residual = (residual + rms_norm(x) * weight) * scale, the sandwich norm with the layer scalar.
struct NormAddArgs {
  Tensor x;       // [rows, dim]
  Tensor weight;  // [dim]
  float eps;
  float scale = 1.0f;
  Tensor residual;  // [rows, dim], in and out
};

// Rotates pairs (i, i + D/2) of every head: angle = position * inverse_frequency[i], D/2
// frequencies (0: not rotated). Angles and their cosines come from one routine of float32
// definition. x [num_tokens, heads, D], in place.
struct RopeArgs {
  Tensor x;
  std::span<const std::int32_t> positions;     // [num_tokens]
  std::span<const float> inverse_frequencies;  // [D / 2]
};

// out = gelu_tanh(gate) * up
struct GeluMulArgs {
  Tensor gate;  // [rows, dim]
  Tensor up;
  Tensor out;  // may be gate
};

// x = cap * tanh(x / cap), in place
struct SoftcapArgs {
  Tensor x;
  float cap;
};

// One sequence's share of a step: tokens [first_row, first_row + num_tokens) at positions
// first_position, ...
struct KvRow {
  int first_row = 0;
  int num_tokens = 0;
  int first_position = 0;
  KvView kv;
};

// Stores keys and values of the step's tokens into the pages. k, v [num_tokens, nk, D]
struct KvAppendArgs {
  Tensor k;
  Tensor v;
  KvGeometry geometry;
  std::span<const KvRow> rows;
};

// Softmax attention over the pages (the step's own keys are read back from them). Key j is visible
// to query i when j <= i and j > i - window (window 0: unlimited). Scores are q.k * scale. Query
// head h reads KV head h / (nq / nk).
struct AttentionArgs {
  Tensor q;  // [num_tokens, nq, D]
  KvGeometry geometry;
  std::span<const KvRow> rows;
  int window = 0;
  float scale = 1.0f;
  Tensor out;  // [num_tokens, nq, D]
};

// Everything between the projections and attention, as one operation: values = rms_norm(v) without
// weight, which comes first because v may be k; then q and k are normed with their weights and
// rotated in place, and keys and values stored. q, k and v are scratch afterwards, except that q
// holds the queries.
struct AttentionInputArgs {
  Tensor q;  // [num_tokens, nq, D]
  Tensor k;  // [num_tokens, nk, D]; k and v empty: only q
  Tensor v;
  Tensor q_norm;  // [D]
  Tensor k_norm;
  float eps;
  std::span<const std::int32_t> positions;
  std::span<const float> inverse_frequencies;
  KvGeometry geometry;
  std::span<const KvRow> rows;
  int window = 0;  // of the attention that follows
};

// norm_add, then out = rms_norm(residual) * weight.
struct NormAddNormArgs {
  NormAddArgs add;
  Tensor weight;
  float eps;
  Tensor out;
};

// out[i, :] = source[rows[i], :]
struct GatherRowsArgs {
  Tensor source;
  std::span<const std::int32_t> rows;
  Tensor out;
};

// out[i] = the lowest index of the largest value of row i, -1 when one of them is not finite; x
// float32 [rows, dim], out int32 [rows]
struct ArgmaxArgs {
  Tensor x;
  Tensor out;
};

// The first candidates of some rows of x, float32 [rows, dim], which may be written over. Each row
// at most once.
struct ShortlistArgs {
  Tensor x;
  std::span<const ShortlistRow> rows;
};

// A forward pass, announced before its first operation. Two steps of one model with equal shapes
// must ask for the same operations with the same sizes, so that a backend may replay them.
struct StepShape {
  std::uint64_t model = 0;      // from new_model_number()
  std::span<const KvRow> rows;  // without pages
  std::int64_t num_wanted = 0;  // rows of logits
  bool greedy = false;
};

// A number that no other model of this process has, or had.
std::uint64_t new_model_number();

struct Capabilities {
  std::string device;  // for people: "CPU AVX2, 2 threads"
  bool keeps_bit_contract = true;
  int num_threads = 1;
  // Results are far from the program: argmax() and shortlist() are cheaper than reading logits.
  bool chooses_tokens = false;
  std::vector<int> head_dims = {};  // of attention; empty: any
};

// Memory for pages on a device. Work on it is ordered among the operations of its backend; one
// caller at a time for both. May throw DeviceError.
class PageDevice {
 public:
  virtual ~PageDevice() = default;
  // What is free on the device now.
  virtual std::uint64_t free_bytes() = 0;
  // Zeroed, 256-byte aligned, freed with the buffer. kResourceExhausted when there is no room.
  virtual Result<std::shared_ptr<tensor::Buffer>> allocate_pages(std::size_t bytes) = 0;
  virtual void zero_pages(std::span<std::byte* const> pages, std::size_t bytes) = 0;
  virtual void copy_page(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // The first `positions` keys and values of a page.
  virtual void copy_positions(const KvGeometry& geometry, std::byte* to, const std::byte* from,
                              std::int64_t positions) = 0;
};

// A copy that is on its way to memory that the program can read.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  // Blocks until it is there. Throws DeviceError.
  virtual Tensor wait() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Capabilities capabilities() const = 0;

  virtual Tensor allocate(const Shape& shape, tensor::DType dtype) = 0;
  // kUnsupported names the format when this device cannot serve it.
  virtual Result<std::unique_ptr<Matrix>> prepare(const StoredMatrix& stored) = 0;

  // Two matrices of one shape for linear_gated(), which is then faster than linear_group() and
  // gelu_mul(); null where it would not be. n() is that of both together.
  virtual Result<std::unique_ptr<Matrix>> prepare_gated(const StoredMatrix&, const StoredMatrix&) {
    return std::unique_ptr<Matrix>();
  }

  // What linear() and its like read and write.
  virtual tensor::DType activation_dtype() const { return tensor::DType::kF32; }
  // The same values where operations can read them, made once (weights of norms).
  virtual Tensor upload(const Tensor& host) { return host; }
  // The same values in memory that the program can read; waits for the operations before.
  virtual Tensor to_host(const Tensor& tensor) { return tensor; }

  // As to_host(), but only begins: other operations may follow at once.
  virtual std::shared_ptr<HostCopy> fetch(const Tensor& tensor);

  // Of the keys and values in pages, and where pages live: null for host memory.
  virtual int kv_element_bytes() const { return 4; }
  virtual PageDevice* page_device() { return nullptr; }

  // Around the operations of a forward pass. Results may be read after end_step().
  virtual void begin_step(const StepShape&) {}
  virtual void end_step() {}
  // Returns when all operations have ended. Throws DeviceError.
  virtual void wait() {}

  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void linear(const LinearArgs& args) = 0;
  virtual void linear_group(const LinearGroupArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void norm_add(const NormAddArgs& args) = 0;
  virtual void rope(const RopeArgs& args) = 0;
  virtual void gelu_mul(const GeluMulArgs& args) = 0;
  virtual void softcap(const SoftcapArgs& args) = 0;
  virtual void kv_append(const KvAppendArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;

  // out = gelu_tanh(x * gate^T) * (x * up^T), out [m, n / 2]; weights of prepare_gated().
  virtual void linear_gated(const LinearArgs& args);

  // Composed of the operations above where a backend has nothing better. The last three expect host
  // memory then.
  virtual void attention_inputs(const AttentionInputArgs& args);
  virtual void norm_add_norm(const NormAddNormArgs& args);
  virtual void gather_rows(const GatherRowsArgs& args);
  virtual void argmax(const ArgmaxArgs& args);
  // In the order of args.rows. Not between begin_step() and end_step().
  virtual std::vector<Shortlist> shortlist(const ShortlistArgs& args);
};

enum class CpuTarget { kBest, kScalar, kAvx2, kAvx512 };

struct CpuOptions {
  int num_threads = 0;       // 0: one per core that this process may use
  bool pin_threads = false;  // workers on cores of their own; see ThreadPool
  CpuTarget target = CpuTarget::kBest;
  bool pack_weights = true;  // re-order 4-bit weights at load; the bits are the same either way
  // Tests of the tests only: break the bit-contract from this number of rows on; 0: never. See
  // broken_backend.h.
  int test_split_k_rows = 0;
};
// kUnavailable when the processor lacks the target.
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);
// kUnavailable in builds without CUDA, and where the driver, the card or one of its kind is
// missing.
Result<std::unique_ptr<Backend>> make_cuda_backend(int device);

}  // namespace flotilla::backend
