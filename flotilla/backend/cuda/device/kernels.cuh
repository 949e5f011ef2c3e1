// What the host side of the backend may launch. Pointers are device memory unless they say
// otherwise; every function returns the launch's error and works on the given stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "flotilla/backend/cuda/device/layout.cuh"

namespace flotilla::backend::cuda {

// A matrix of activations, bf16 or float32, whole rows behind each other.
struct Values {
  void* data;
  bool is_f32;
};

// ---- blocks of 4-bit affine codes in groups of 64 (linear.cu)
constexpr int kSplitTokens = 128;  // above: prefill_kernel
struct Workspace {
  float* partials;
  float* totals;
  static std::size_t partial_bytes(int procs) {
    return static_cast<std::size_t>(procs) * kRows * kSplitTokens * 4;
  }
  static std::size_t total_bytes(int multiprocessors) {
    return static_cast<std::size_t>(multiprocessors) * kRows * 256 * 4;
  }
};
// `params` without partials and totals. x [m][k] bf16, 16-byte aligned.
cudaError_t linear_packed(const bf16* x, int k, LinearParams params, const Workspace& workspace,
                          int multiprocessors, cudaStream_t stream);
cudaError_t fill_missing(float* partials, std::size_t bytes, cudaStream_t stream);
// Token i is ids[i], or where from[i] >= 0 what the step before chose for its row from[i].
struct TokenIds {
  const std::int32_t* ids;
  const std::int32_t* from;
  const std::int32_t* choices;
};
// Fills packed blocks with codes, scales and biases made from a seed: for benches.
cudaError_t synthesize(std::uint8_t* packed, int n, int k, std::uint64_t seed, cudaStream_t stream);

// ---- any stored format, as it is
enum class CodeKind : int { kF32, kF16, kBF16, kAffine, kE2M1, kE4M3 };
enum class ScaleKind : int { kNone, kF32, kF16, kBF16, kE8M0, kE4M3 };
struct GenericMatrix {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  const std::uint8_t* biases;
  CodeKind code;
  ScaleKind scale;
  int bits, group, n, k;
};
// Slow: one warp per output. The sum of lane l takes k = l, l + 32, ...; then a tree over lanes.
cudaError_t linear_generic(const GenericMatrix& w, const bf16* x, int m, Values out,
                           cudaStream_t stream);
cudaError_t embedding_generic(const GenericMatrix& w, const TokenIds& ids, int tokens, float factor,
                              Values out, cudaStream_t stream);

// ---- packed blocks of other formats (block_formats.cuh, linear_blocks.cu, pack_blocks.cu)
enum class BlockFormat : int {
  kAffine4,
  kAffine4Fine,
  kAffine8,
  kAffine8Fine,
  kE2M1,
  kE4M3,
  kDense
};
int block_bytes(BlockFormat format);
cudaError_t linear_blocks(BlockFormat format, const bf16* x, int k, LinearParams params,
                          const Workspace& workspace, int multiprocessors, cudaStream_t stream);
// `second` not null: rows of both in turns. Sets *out_of_range when a number does not fit the form.
cudaError_t pack_blocks(BlockFormat format, const GenericMatrix& first, const GenericMatrix* second,
                        std::uint8_t* packed, int* out_of_range, cudaStream_t stream);
cudaError_t embedding_blocks(BlockFormat format, const std::uint8_t* packed, int k,
                             const TokenIds& ids, int tokens, float factor, Values out,
                             cudaStream_t stream);
// Made-up blocks for benches: codes of a seed, scales of one kind.
cudaError_t synthesize_blocks(BlockFormat format, std::uint8_t* packed, int n, int k,
                              std::uint64_t seed, cudaStream_t stream);

// ---- rows and elements (elementwise.cu)
struct NormParams {
  Values x;                 // [rows][dim]
  const float* add_weight;  // null: no addition, h = x
  float add_eps;
  float scale;
  float* residual;      // h = (residual + norm(x) * add_weight) * scale, stored here
  bool norms;           // out = norm(h) * weight
  const float* weight;  // may be null
  float eps;
  Values out;
  int rows, dim;
};
cudaError_t norm(const NormParams& params, cudaStream_t stream);
cudaError_t gelu_mul(Values gate, Values up, Values out, std::size_t count, cudaStream_t stream);
cudaError_t softcap(Values x, float cap, std::size_t count, cudaStream_t stream);
cudaError_t to_bf16(const float* from, bf16* to, std::size_t count, cudaStream_t stream);
cudaError_t gather_rows(const void* from, const std::int32_t* rows, int num_rows,
                        std::size_t row_bytes, void* to, cudaStream_t stream);
cudaError_t zero_pages(std::byte* const* pages, int count, std::size_t bytes, cudaStream_t stream);
// The lowest index of the largest value of each row, -1 when one is not finite; scratch: rows *
// kArgmaxParts * 8 bytes.
constexpr int kArgmaxParts = 32;
// The first kMostChoices rows go to `choices` as well, for the embedding of the next step.
constexpr int kMostChoices = 4096;
cudaError_t argmax(const float* x, int rows, int dim, void* scratch, std::int32_t* out,
                   std::int32_t* choices, cudaStream_t stream);
// ---- the first candidates of rows (shortlist.cu), as backend/shortlist.h defines them
constexpr int kShortlistPart = 8192;  // logits of a thread block
constexpr int kMostShortlistCount = 256;
struct LogitChange {  // as LogitEdit
  std::int32_t id;
  float bias, repetition, penalty;
  std::int32_t taken_out;
};
struct ShortlistSource {
  std::int32_t row, count;
  const std::uint32_t* allowed;  // null: all
  std::int32_t allowed_words;
  std::int32_t num_changes;
  const LogitChange* changes;
};
struct ShortlistEntry {
  float value;
  std::int32_t id;
};
struct ShortlistParams {
  float* x;  // [.][dim]; changed logits are written back
  int dim;
  const ShortlistSource* sources;
  int num_rows, num_changes, max_count;
  unsigned long long* keys;  // [num_rows][parts][max_count]
  std::int32_t* counts;      // [num_rows][parts]
  // [num_rows][1 + max_count]: first {., number of entries or -1: a logit is not finite}.
  ShortlistEntry* out;
  int parts() const { return (dim + kShortlistPart - 1) / kShortlistPart; }
};
cudaError_t shortlist(const ShortlistParams& params, cudaStream_t stream);
cudaError_t rope(Values x, const std::int32_t* positions, const float* frequencies, int tokens,
                 int heads, int dim, cudaStream_t stream);
// Adds the number of 32-bit words that differ to *count.
cudaError_t count_differences(const void* a, const void* b, std::size_t bytes,
                              unsigned long long* count, cudaStream_t stream);
// Reads `bytes` once: the yardstick of benches. `sink` holds one word per multiprocessor.
cudaError_t read_all(const void* data, std::size_t bytes, std::uint32_t* sink, int multiprocessors,
                     cudaStream_t stream);

// ---- attention (kv_store.cu, attention.cu)
// A page holds 32 absolute positions of one layer: for each KV head K as [32][head_dim], then V as
// [head_dim][32], bf16. Where nothing was written it holds zeros or finite numbers.
constexpr int kPageTokens = 32;
constexpr int kChunkPages = 8;  // the pages of one partial result
struct SequenceRow {            // as KvRow; `pages` in device memory
  const bf16* const* pages;
  int first_row, num_tokens, first_position, first_block;
};
// A block of consecutive tokens of one row.
struct TokenSpan {
  int row, first_token, num_tokens;
};
struct KvStoreParams {
  const SequenceRow* rows;
  const TokenSpan* spans;  // each within one page
  int num_spans;
  int max_tokens;  // of a span
  int num_heads, num_kv_heads, head_dim;
  // [token][heads * head_dim] bf16. q null: keys and values only; k null: queries only.
  bf16* q;
  const bf16* k;
  const bf16* v;
  bool prepare;  // q, k, v are raw: norm q, k and v, rotate q and k
  const float *q_norm, *k_norm;
  float eps;
  const float* frequencies;  // [head_dim / 2]
};
cudaError_t kv_store(const KvStoreParams& params, cudaStream_t stream);

struct AttentionParams {
  bool prepares;  // decode spans of one token: q, k and v are raw, see KvStoreParams
  KvStoreParams inputs;
  const bf16* q;
  bf16* out;
  const SequenceRow* rows;
  const TokenSpan* decode;  // spans of few tokens, and their number
  int num_decode;
  const TokenSpan* prefill;  // spans of up to prefill_tile() tokens
  int num_prefill;
  int max_chunks;     // the most chunks that a decode span may see
  int rows_per_tile;  // the most query rows of a decode span in one tile, at most 16
  int num_heads, num_kv_heads, head_dim, window;
  float scale;
  float* partials;  // decode, max_chunks > 1: see attention_partial_bytes
  float* totals;    // prefill: see attention_total_bytes
  int multiprocessors;
};
bool attention_supports(int head_dim);
// Blocks of query heads that a token is cut into.
int attention_tiles(int num_heads, int num_kv_heads);
// Tokens of a span: at most decode_tile for the decode kernel.
int attention_decode_tile(int num_heads, int num_kv_heads);
int attention_prefill_tile(int num_heads, int num_kv_heads, int head_dim);
std::size_t attention_partial_bytes(const AttentionParams& params);
std::size_t attention_total_bytes(int multiprocessors);
cudaError_t attention(const AttentionParams& params, cudaStream_t stream);

// Writes where there is no memory: for tests of what happens then.
cudaError_t fault(cudaStream_t stream);

// ---- self test (self_test.cu). Number of outputs where wgmma and mma.sync differ, -1 on an error.
long long count_wgmma_differences(cudaStream_t stream, long long* outputs);

}  // namespace flotilla::backend::cuda
