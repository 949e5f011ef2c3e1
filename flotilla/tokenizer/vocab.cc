#include "flotilla/tokenizer/vocab.h"

#include <algorithm>
#include <functional>

namespace flotilla::tokenizer {
namespace {
std::uint32_t hash_of(std::string_view token) {
  return static_cast<std::uint32_t>(std::hash<std::string_view>()(token));
}
}  // namespace

std::size_t Vocab::slot_of(std::string_view token, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  while (slots_[slot] != kEmpty) {
    const Entry& e = entries_[slots_[slot]];
    if (e.hash == hash && text_of(e) == token) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Vocab::grow() {
  slots_.assign(std::max<std::size_t>(1024, slots_.size() * 2), kEmpty);
  const std::size_t mask = slots_.size() - 1;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    std::size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != kEmpty) slot = (slot + 1) & mask;
    slots_[slot] = i;
  }
}

void Vocab::add(std::string_view token, TokenId id) {
  if (entries_.size() * 2 >= slots_.size()) grow();
  const std::uint32_t hash = hash_of(token);
  const std::size_t slot = slot_of(token, hash);
  if (slots_[slot] != kEmpty) {
    entries_[slots_[slot]].id = id;
    return;
  }
  slots_[slot] = static_cast<std::uint32_t>(entries_.size());
  entries_.push_back({static_cast<std::uint32_t>(text_.size()),
                      static_cast<std::uint32_t>(token.size()), id, hash});
  text_ += token;
  longest_ = std::max(longest_, token.size());
}

void Vocab::seal() {
  text_.shrink_to_fit();
  entries_.shrink_to_fit();
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    const auto id = static_cast<std::size_t>(entries_[i].id);
    if (id >= by_id_.size()) by_id_.resize(id + 1, kEmpty);
    if (by_id_[id] != kEmpty) has_shared_ids_ = true;
    by_id_[id] = i;
  }
}

std::optional<TokenId> Vocab::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const std::uint32_t index = slots_[slot_of(token, hash_of(token))];
  if (index == kEmpty) return std::nullopt;
  return entries_[index].id;
}

std::optional<std::string_view> Vocab::token(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= by_id_.size() ||
      by_id_[static_cast<std::size_t>(id)] == kEmpty) {
    return std::nullopt;
  }
  return text_of(entries_[by_id_[static_cast<std::size_t>(id)]]);
}

}  // namespace flotilla::tokenizer
