// A hash map from pairs of token ids to two numbers: open addressing, 16 bytes an entry, made once,
// then only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flotilla/base/ids.h"

namespace flotilla::tokenizer {

class PairTable {
 public:
  struct Entry {
    TokenId left = -1;  // -1: empty
    TokenId right = -1;
    std::uint32_t rank = 0;
    TokenId product = -1;
  };

  // Room for `count` pairs; call before insert(). Empties the table.
  void reserve(std::size_t count) {
    std::size_t slots = 16;
    while (slots < count * 2) slots *= 2;
    slots_.assign(slots, Entry{});
    shift_ = 64 - __builtin_ctzll(slots);
    size_ = 0;
  }
  // Overwrites an equal pair.
  void insert(TokenId left, TokenId right, std::uint32_t rank, TokenId product) {
    Entry& e = slots_[slot_of(left, right)];
    if (e.left < 0) ++size_;
    e = {left, right, rank, product};
  }
  // nullptr when there is no such pair. Ids are not negative.
  const Entry* find(TokenId left, TokenId right) const {
    if (slots_.empty()) return nullptr;
    const Entry& e = slots_[slot_of(left, right)];
    return e.left < 0 ? nullptr : &e;
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Entry& e : slots_) {
      if (e.left >= 0) visit(e);
    }
  }
  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const { return slots_.size() * sizeof(Entry); }

 private:
  std::size_t slot_of(TokenId left, TokenId right) const {
    const std::uint64_t key =
        std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    std::size_t slot = (key * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[slot].left >= 0 && (slots_[slot].left != left || slots_[slot].right != right)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }
  std::vector<Entry> slots_;
  int shift_ = 60;
  std::size_t size_ = 0;
};

}  // namespace flotilla::tokenizer
