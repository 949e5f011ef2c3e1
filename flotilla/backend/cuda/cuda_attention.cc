// Attention and the writes into pages: how the rows of a step are cut into work for the card.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "flotilla/backend/cuda/cuda_state.cuh"
#include "flotilla/backend/device_error.h"

namespace flotilla::backend::cuda {
namespace {

using tensor::DType;

// The pages that a row touches: what its first token's window sees, up to its last token.
struct PageRange {
  int begin, end;
};
PageRange pages_of(const KvRow& row, int window) {
  const int lowest = window > 0 ? std::max(0, row.first_position - window + 1) : 0;
  return {lowest / kPageTokens, (row.first_position + row.num_tokens - 1) / kPageTokens + 1};
}

// Room for the table of a row: the same in all steps that one recording serves.
int table_room(const KvRow& row, int window, int page_bucket) {
  if (window == 0) return page_bucket;
  return std::min(page_bucket, (window + row.num_tokens + kPageTokens - 2) / kPageTokens + 1);
}

int most_tokens(std::span<const KvRow> rows) {
  int most = 1;
  for (const KvRow& row : rows) most = std::max(most, row.num_tokens);
  return most;
}

void check_head_dim(int head_dim) {
  if (!attention_supports(head_dim)) {
    throw DeviceError("attention with heads of " + std::to_string(head_dim) +
                      " channels is not supported on the card");
  }
}

}  // namespace

const void* CudaBackend::stage_rows(std::span<const KvRow> rows, int window) {
  State& s = *state_;
  // The write and the attention of a layer use the same table.
  const auto same = [&] {
    if (!s.step->in_step() || s.row_window != window || s.row_key.size() != rows.size())
      return false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (s.row_key[i] != rows[i].kv.pages[0]) return false;
    }
    return true;
  };
  if (same()) return s.rows_on_card;
  int bucket = s.step->page_bucket();
  if (!s.step->in_step()) {
    for (const KvRow& row : rows) bucket = std::max(bucket, pages_of(row, 0).end);
  }
  std::size_t room = 0;
  for (const KvRow& row : rows) room += static_cast<std::size_t>(table_room(row, window, bucket));
  const std::size_t header = rows.size() * sizeof(SequenceRow);
  const CudaStep::Place place = s.step->reserve(header + room * sizeof(void*));
  auto* table = reinterpret_cast<SequenceRow*>(place.host);
  auto* pages = reinterpret_cast<const bf16**>(place.host + header);
  const auto* pages_on_card =
      reinterpret_cast<const bf16* const*>(static_cast<const std::byte*>(place.device) + header);
  s.row_key.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const KvRow& row = rows[i];
    const PageRange range = pages_of(row, window);
    const int capacity = table_room(row, window, bucket);
    FLOTILLA_CHECK(range.end - range.begin <= capacity, "a page table is too small");
    table[i] = {.pages = pages_on_card,
                .first_row = row.first_row,
                .num_tokens = row.num_tokens,
                .first_position = row.first_position,
                .first_block = range.begin};
    for (int b = range.begin; b < range.end; ++b)
      pages[b - range.begin] = reinterpret_cast<const bf16*>(row.kv.pages[b - row.kv.first_block]);
    pages += capacity;
    pages_on_card += capacity;
    s.row_key.push_back(row.kv.pages[0]);
  }
  s.step->commit(place);
  s.row_window = window;
  s.rows_on_card = place.device;
  return place.device;
}

std::pair<const void*, int> CudaBackend::stage_page_spans(std::span<const KvRow> rows) {
  std::vector<TokenSpan> spans;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int t = 0; t < rows[i].num_tokens;) {
      const int room = kPageTokens - (rows[i].first_position + t) % kPageTokens;
      const int count = std::min(room, rows[i].num_tokens - t);
      spans.push_back({static_cast<int>(i), t, count});
      t += count;
    }
  }
  return {state_->step->stage(spans.data(), spans.size() * sizeof(TokenSpan)),
          static_cast<int>(spans.size())};
}

void CudaBackend::kv_append(const KvAppendArgs& args) {
  if (args.rows.empty()) return;
  check_head_dim(args.geometry.head_dim);
  KvStoreParams p{};
  p.rows = static_cast<const SequenceRow*>(stage_rows(args.rows, 0));
  const auto [spans, count] = stage_page_spans(args.rows);
  p.spans = static_cast<const TokenSpan*>(spans);
  p.num_spans = count;
  p.max_tokens = most_tokens(args.rows);
  p.num_kv_heads = args.geometry.num_kv_heads;
  p.head_dim = args.geometry.head_dim;
  p.k = args.k.data<bf16>();
  p.v = args.v.data<bf16>();
  run("kv_append", [&](cudaStream_t stream) { return kv_store(p, stream); });
}

void CudaBackend::attention_inputs(const AttentionInputArgs& args) {
  if (args.rows.empty()) return;
  if (state_->inputs) store_inputs();
  check_head_dim(args.geometry.head_dim);
  KvStoreParams p{};
  p.rows = static_cast<const SequenceRow*>(stage_rows(args.rows, args.window));
  const auto [spans, count] = stage_page_spans(args.rows);
  p.spans = static_cast<const TokenSpan*>(spans);
  p.num_spans = count;
  p.max_tokens = most_tokens(args.rows);
  p.num_heads = static_cast<int>(args.q.dim(1));
  p.num_kv_heads = args.geometry.num_kv_heads;
  p.head_dim = args.geometry.head_dim;
  p.q = args.q.data<bf16>();
  if (!args.k.empty()) {
    p.k = args.k.data<bf16>();
    p.v = args.v.data<bf16>();
    p.k_norm = args.k_norm.data<float>();
  }
  p.prepare = true;
  p.q_norm = args.q_norm.data<float>();
  p.eps = args.eps;
  p.frequencies = state_->step->constant(args.inverse_frequencies);
  state_->inputs = p;
  if (!state_->step->in_step() || p.max_tokens > 1) store_inputs();
}

void CudaBackend::store_inputs() {
  const KvStoreParams p = *std::exchange(state_->inputs, std::nullopt);
  run("attention_inputs", [&](cudaStream_t stream) { return kv_store(p, stream); });
}

void CudaBackend::attention(const AttentionArgs& args) {
  if (args.rows.empty()) return;
  check_head_dim(args.geometry.head_dim);
  const int num_heads = static_cast<int>(args.q.dim(1));
  const int num_kv_heads = args.geometry.num_kv_heads, head_dim = args.geometry.head_dim;
  const int few = attention_decode_tile(num_heads, num_kv_heads);
  const int many = attention_prefill_tile(num_heads, num_kv_heads, head_dim);
  std::vector<TokenSpan> decode, prefill;
  int max_chunks = 1, max_tokens = 1;
  for (std::size_t i = 0; i < args.rows.size(); ++i) {
    const KvRow& row = args.rows[i];
    if (row.num_tokens <= few) {
      decode.push_back({static_cast<int>(i), 0, row.num_tokens});
      // As many as any step of the same recording may need; superfluous blocks end at once.
      const int bucket =
          state_->step->in_step() ? state_->step->page_bucket() : pages_of(row, 0).end;
      int chunks = (bucket + kChunkPages - 1) / kChunkPages;
      if (args.window > 0) {
        const int span = args.window + row.num_tokens - 1;
        chunks = std::min(chunks,
                          (span + kChunkPages * kPageTokens - 2) / (kChunkPages * kPageTokens) + 1);
      }
      max_chunks = std::max(max_chunks, chunks);
      max_tokens = std::max(max_tokens, row.num_tokens);
      continue;
    }
    for (int t = 0; t < row.num_tokens; t += many)
      prefill.push_back({static_cast<int>(i), t, std::min(many, row.num_tokens - t)});
  }
  AttentionParams p{};
  // Every chunk prepares the queries for itself: with many of them that takes longer than a kernel
  // before, without them that kernel is saved.
  const int blocks =
      static_cast<int>(decode.size()) * max_chunks * attention_tiles(num_heads, num_kv_heads);
  const bool cheap = max_chunks == 1 || blocks <= 2 * state_->info.multiprocessors;
  if (state_->inputs && state_->inputs->q == args.q.data<bf16>() && max_tokens == 1 &&
      prefill.empty() && cheap) {
    p.prepares = true;
    p.inputs = *std::exchange(state_->inputs, std::nullopt);
  }
  p.q = args.q.data<bf16>();
  p.out = args.out.data<bf16>();
  p.rows = static_cast<const SequenceRow*>(stage_rows(args.rows, args.window));
  p.decode = static_cast<const TokenSpan*>(
      state_->step->stage(decode.data(), decode.size() * sizeof(TokenSpan)));
  p.num_decode = static_cast<int>(decode.size());
  p.prefill = static_cast<const TokenSpan*>(
      state_->step->stage(prefill.data(), prefill.size() * sizeof(TokenSpan)));
  p.num_prefill = static_cast<int>(prefill.size());
  p.max_chunks = max_chunks;
  p.rows_per_tile = max_tokens * (16 / few);
  p.num_heads = num_heads;
  p.num_kv_heads = num_kv_heads;
  p.head_dim = head_dim;
  p.window = args.window;
  p.scale = args.scale;
  p.totals = reinterpret_cast<float*>(state_->attention_totals->data());
  p.multiprocessors = state_->info.multiprocessors;
  Tensor partials;
  if (!decode.empty() && max_chunks > 1) {
    const auto bytes = static_cast<std::int64_t>(attention_partial_bytes(p));
    partials = allocate({bytes}, DType::kU8);
    p.partials = partials.data<float>();
  }
  run("attention", [&](cudaStream_t stream) { return cuda::attention(p, stream); });
}

}  // namespace flotilla::backend::cuda
