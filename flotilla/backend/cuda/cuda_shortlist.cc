// The first candidates of rows: what travels to the card and back.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "flotilla/backend/cuda/cuda_state.cuh"

namespace flotilla::backend::cuda {

using tensor::DType;

namespace {

static_assert(sizeof(LogitChange) == sizeof(LogitEdit) &&
              offsetof(LogitChange, repetition) == offsetof(LogitEdit, repetition) &&
              offsetof(LogitChange, taken_out) == offsetof(LogitEdit, taken_out));
static_assert(kMostShortlistCount == kMostShortlisted);

constexpr std::size_t kMostStaged = std::size_t{16} << 20;  // of one round

std::size_t round_up(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

std::size_t staged_bytes(const ShortlistRow& row) {
  return sizeof(ShortlistSource) + round_up(row.allowed.size_bytes()) +
         round_up(row.edits.size_bytes());
}

}  // namespace

std::vector<Shortlist> CudaBackend::shortlist(const ShortlistArgs& args) {
  bind();
  FLOTILLA_CHECK(!state_->step->in_step(), "a shortlist within a step");
  std::vector<Shortlist> lists;
  for (std::size_t begin = 0; begin < args.rows.size();) {
    std::size_t end = begin, bytes = 0;
    do bytes += staged_bytes(args.rows[end++]);
    while (end < args.rows.size() && bytes + staged_bytes(args.rows[end]) <= kMostStaged);
    for (Shortlist& list : shortlist_round(args.x, args.rows.subspan(begin, end - begin))) {
      lists.push_back(std::move(list));
    }
    begin = end;
  }
  return lists;
}

std::vector<Shortlist> CudaBackend::shortlist_round(const Tensor& x,
                                                    std::span<const ShortlistRow> wanted) {
  ShortlistParams p{};
  p.x = x.data<float>();
  p.dim = static_cast<int>(x.dim(1));
  p.num_rows = static_cast<int>(wanted.size());
  std::size_t bytes = round_up(wanted.size() * sizeof(ShortlistSource));
  std::size_t at = bytes;
  for (const ShortlistRow& row : wanted) bytes += staged_bytes(row);
  const CudaStep::Place place = state_->step->reserve(bytes);
  const auto* on_card = static_cast<const std::byte*>(place.device);
  const auto put = [&](const void* data, std::size_t size) -> const std::byte* {
    if (size == 0) return nullptr;
    std::memcpy(place.host + at, data, size);
    const std::byte* there = on_card + at;
    at += round_up(size);
    return there;
  };
  auto* sources = reinterpret_cast<ShortlistSource*>(place.host);
  for (const ShortlistRow& row : wanted) {
    FLOTILLA_CHECK(row.count >= 1 && row.count <= kMostShortlisted, "the length of a shortlist");
    ShortlistSource source{};
    source.row = row.row;
    source.count = row.count;
    source.allowed_words = static_cast<std::int32_t>(row.allowed.size());
    source.num_changes = static_cast<std::int32_t>(row.edits.size());
    source.allowed =
        reinterpret_cast<const std::uint32_t*>(put(row.allowed.data(), row.allowed.size_bytes()));
    source.changes =
        reinterpret_cast<const LogitChange*>(put(row.edits.data(), row.edits.size_bytes()));
    p.num_changes = std::max(p.num_changes, source.num_changes);
    p.max_count = std::max(p.max_count, row.count);
    *sources++ = source;
  }
  state_->step->commit(place);
  p.sources = reinterpret_cast<const ShortlistSource*>(on_card);
  const std::int64_t rows = p.num_rows, parts = p.parts(), most = p.max_count;
  const Tensor keys = allocate({rows * parts * most * 2}, DType::kI32);
  const Tensor counts = allocate({rows * parts}, DType::kI32);
  const Tensor out = allocate({rows, (1 + most) * 2}, DType::kI32);
  p.keys = reinterpret_cast<unsigned long long*>(keys.bytes());
  p.counts = counts.data<std::int32_t>();
  p.out = reinterpret_cast<ShortlistEntry*>(out.bytes());
  run("shortlist", [&](cudaStream_t stream) { return cuda::shortlist(p, stream); });
  const Tensor host = fetch(out)->wait();
  std::vector<Shortlist> lists(wanted.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const auto* entries = reinterpret_cast<const ShortlistEntry*>(host.bytes()) +
                          i * (1 + static_cast<std::size_t>(most));
    lists[i].is_finite = entries[0].id >= 0;
    for (std::int32_t e = 1; e <= entries[0].id; ++e) {
      lists[i].first.push_back({entries[e].value, entries[e].id});
    }
  }
  return lists;
}

}  // namespace flotilla::backend::cuda
