#include "flotilla/coordinator/catalog/catalog_view.h"

#include <algorithm>
#include <tuple>

namespace flotilla::coordinator {

std::string_view to_string(CatalogState state) {
  switch (state) {
    case CatalogState::kPublished:
      return "published";
    case CatalogState::kActive:
      return "active";
    case CatalogState::kRetired:
      return "retired";
  }
  return "unknown";
}

std::uint64_t CatalogEntry::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& file : files) sum += file.size;
  return sum;
}

CatalogView::CatalogView(bool only, std::vector<CatalogEntry> entries,
                         std::map<std::string, std::string> aliases)
    : only_(only), entries_(std::move(entries)), aliases_(std::move(aliases)) {
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.model, a.version) < std::tie(b.model, b.version);
  });
  for (std::size_t i = 0; i < entries_.size(); ++i) by_model_[entries_[i].model].push_back(i);
}

const std::string& CatalogView::resolve(const std::string& name) const {
  const auto at = aliases_.find(name);
  return at == aliases_.end() ? name : at->second;
}

Status CatalogView::allows(const std::string& model) const {
  if (!has(model)) {
    if (!only_) return ok_status();
    return Error{ErrorCode::kNotFound, "the model '" + model + "' does not exist", "model"};
  }
  if (active(model) != nullptr) return ok_status();
  return Error{ErrorCode::kNotFound, "no version of the model '" + model + "' is active", "model"};
}

Standing CatalogView::standing(const std::string& model, const std::string& digest) const {
  if (!has(model)) return only_ ? Standing::kNotServed : Standing::kFree;
  const CatalogEntry* entry = active(model);
  if (entry == nullptr) return Standing::kNotServed;
  return entry->digest == digest ? Standing::kActive : Standing::kOtherVersion;
}

const CatalogEntry* CatalogView::find(const std::string& model, const std::string& digest) const {
  const auto at = by_model_.find(model);
  if (at == by_model_.end()) return nullptr;
  for (const std::size_t i : at->second) {
    if (entries_[i].digest == digest) return &entries_[i];
  }
  return nullptr;
}

const CatalogEntry* CatalogView::active(const std::string& model) const {
  const auto at = by_model_.find(model);
  if (at == by_model_.end()) return nullptr;
  for (const std::size_t i : at->second) {
    if (entries_[i].state == CatalogState::kActive) return &entries_[i];
  }
  return nullptr;
}

const CatalogEntry* CatalogView::folder_of(const std::string& digest) const {
  for (const CatalogEntry& entry : entries_) {
    if (entry.digest == digest && entry.state != CatalogState::kRetired && entry.is_folder())
      return &entry;
  }
  return nullptr;
}

const CatalogEntry* CatalogView::version(const std::string& model, std::int64_t version) const {
  const auto at = by_model_.find(model);
  if (at == by_model_.end()) return nullptr;
  for (const std::size_t i : at->second) {
    if (entries_[i].version == version) return &entries_[i];
  }
  return nullptr;
}

void apply(const CatalogEntry& entry, gates::ModelFacts& facts) {
  facts.size.min_memory_bytes = entry.min_memory_bytes;
  if (entry.runtime.resident_bytes) {
    facts.size.listed_bytes = *entry.runtime.resident_bytes;
    facts.size.weight_bytes = facts.size.resident_bytes = 0;
  } else if (facts.size.resident_bytes == 0 && facts.size.weight_bytes == 0) {
    facts.size.listed_bytes = entry.bytes();
  }
}

}  // namespace flotilla::coordinator
