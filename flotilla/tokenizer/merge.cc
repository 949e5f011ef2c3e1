#include "flotilla/tokenizer/merge.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

namespace flotilla::tokenizer {
namespace {

constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr TokenId kRemoved = -1;

void merge_short(const PairTable& merges, std::span<const TokenId> symbols,
                 std::vector<TokenId>& out) {
  if (symbols.size() == 1) {
    out.push_back(symbols[0]);
    return;
  }
  TokenId ids[kShortWord];
  std::uint32_t ranks[kShortWord];  // of the pair that begins here
  TokenId products[kShortWord];
  std::size_t n = symbols.size();
  std::copy(symbols.begin(), symbols.end(), ids);
  const auto look_up = [&](std::size_t i) {
    const PairTable::Entry* m = merges.find(ids[i], ids[i + 1]);
    ranks[i] = m ? m->rank : kNoRank;
    products[i] = m ? m->product : kRemoved;
  };
  for (std::size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const std::size_t i = static_cast<std::size_t>(std::min_element(ranks, ranks + n - 1) - ranks);
    if (ranks[i] == kNoRank) break;
    ids[i] = products[i];
    std::copy(ids + i + 2, ids + n, ids + i + 1);
    if (i + 2 < n) {
      std::copy(ranks + i + 2, ranks + n - 1, ranks + i + 1);
      std::copy(products + i + 2, products + n - 1, products + i + 1);
    }
    --n;
    if (i + 1 < n) look_up(i);
    if (i > 0) look_up(i - 1);
  }
  out.insert(out.end(), ids, ids + n);
}

// Symbols as a list, from which merged ones are taken out.
class SymbolList {
 public:
  SymbolList(std::span<TokenId> ids, MergeBuffer& buffer)
      : ids_(ids), next_(buffer.next), previous_(buffer.previous) {
    const auto n = static_cast<std::uint32_t>(ids.size());
    next_.resize(n);
    previous_.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      next_[i] = i + 1 < n ? i + 1 : kNone;
      previous_[i] = i > 0 ? i - 1 : kNone;
    }
  }

  // Calls push(entry, position) for each pair that may merge.
  template <class Push>
  void all_candidates(const PairTable& merges, Push push) const {
    for (std::uint32_t i = 0; i + 1 < ids_.size(); ++i) {
      if (const PairTable::Entry* m = merges.find(ids_[i], ids_[i + 1])) push(*m, i);
    }
  }

  // Merges the pair at `position` when it still gives `product`, and calls push() for the new
  // pairs. Candidates are not removed when their neighbourhood changes; so they are checked here.
  template <class Push>
  void merge(const PairTable& merges, std::uint32_t position, TokenId product, Push push) {
    if (ids_[position] == kRemoved || next_[position] == kNone) return;
    const std::uint32_t right = next_[position];
    const PairTable::Entry* m = merges.find(ids_[position], ids_[right]);
    if (!m || m->product != product) return;
    ids_[position] = product;
    ids_[right] = kRemoved;
    const std::uint32_t after = next_[right];
    const std::uint32_t before = previous_[position];
    next_[position] = after;
    if (after != kNone) previous_[after] = position;
    if (before != kNone) {
      if (const PairTable::Entry* e = merges.find(ids_[before], product)) push(*e, before);
    }
    if (after != kNone) {
      if (const PairTable::Entry* e = merges.find(product, ids_[after])) push(*e, position);
    }
  }

  void append_to(std::vector<TokenId>& out) const {
    for (const TokenId id : ids_) {
      if (id != kRemoved) out.push_back(id);
    }
  }

 private:
  std::span<TokenId> ids_;
  std::vector<std::uint32_t>& next_;
  std::vector<std::uint32_t>& previous_;
};

void merge_medium(const PairTable& merges, SymbolList& list,
                  std::vector<MergeBuffer::Candidate>& heap) {
  using Candidate = MergeBuffer::Candidate;
  const auto later = [](const Candidate& a, const Candidate& b) { return a.order > b.order; };
  heap.clear();
  list.all_candidates(merges, [&](const PairTable::Entry& e, std::uint32_t position) {
    heap.push_back({std::uint64_t{e.rank} << 32 | position, e.product});
  });
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    list.merge(merges, static_cast<std::uint32_t>(top.order), top.product,
               [&](const PairTable::Entry& e, std::uint32_t position) {
                 heap.push_back({std::uint64_t{e.rank} << 32 | position, e.product});
                 std::push_heap(heap.begin(), heap.end(), later);
               });
  }
}

// The candidates of one rank. Positions are gathered, sorted once when their turn comes, and read
// in order; late ones go into a heap of their own.
struct Bucket {
  TokenId product = kRemoved;
  bool is_queued = false;
  bool is_started = false;
  std::size_t read = 0;
  std::vector<std::uint32_t> positions;
  std::vector<std::uint32_t> late;

  bool is_empty() const { return read == positions.size() && late.empty(); }
  void add(std::uint32_t position) {
    if (!is_started || positions.empty() || position > positions.back()) {
      positions.push_back(position);
      return;
    }
    late.push_back(position);
    std::push_heap(late.begin(), late.end(), std::greater<>());
  }
  std::uint32_t take() {
    if (!is_started) {
      if (!std::is_sorted(positions.begin(), positions.end()))
        std::sort(positions.begin(), positions.end());
      is_started = true;
    }
    if (late.empty() || (read < positions.size() && positions[read] <= late.front()))
      return positions[read++];
    std::pop_heap(late.begin(), late.end(), std::greater<>());
    const std::uint32_t position = late.back();
    late.pop_back();
    return position;
  }
};

// A heap of millions of candidates misses the cache at every step. Here only the ranks are in a
// heap, and the positions of a rank are passed over from left to right.
void merge_long(const PairTable& merges, SymbolList& list) {
  std::unordered_map<std::uint32_t, Bucket> buckets;
  std::vector<std::uint32_t> ranks;  // a heap of those whose bucket is not empty
  const auto push = [&](const PairTable::Entry& e, std::uint32_t position) {
    Bucket& bucket = buckets[e.rank];
    bucket.product = e.product;
    bucket.add(position);
    if (bucket.is_queued) return;
    bucket.is_queued = true;
    ranks.push_back(e.rank);
    std::push_heap(ranks.begin(), ranks.end(), std::greater<>());
  };
  list.all_candidates(merges, push);
  while (!ranks.empty()) {
    const std::uint32_t rank = ranks.front();
    Bucket& bucket = buckets[rank];  // references stay valid when the map grows
    // A merge may bring up a lower rank, which then goes first.
    while (!bucket.is_empty() && ranks.front() == rank)
      list.merge(merges, bucket.take(), bucket.product, push);
    if (ranks.front() != rank) continue;
    bucket.is_queued = false;
    std::pop_heap(ranks.begin(), ranks.end(), std::greater<>());
    ranks.pop_back();
  }
}

}  // namespace

void merge_symbols(const PairTable& merges, std::span<TokenId> symbols, std::vector<TokenId>& out,
                   MergeBuffer& buffer) {
  if (symbols.size() <= kShortWord) {
    if (!symbols.empty()) merge_short(merges, symbols, out);
    return;
  }
  SymbolList list(symbols, buffer);
  if (symbols.size() <= kMediumWord) {
    merge_medium(merges, list, buffer.heap);
  } else {
    merge_long(merges, list);
  }
  list.append_to(out);
}

}  // namespace flotilla::tokenizer
