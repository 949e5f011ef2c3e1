#include "flotilla/engine/memory_budget.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace flotilla::engine {

struct MemoryGrant::Ledger {
  explicit Ledger(std::uint64_t cap_bytes) : cap(cap_bytes) {}
  std::uint64_t free() const { return cap - std::min(cap, granted); }  // with mutex

  const std::uint64_t cap;
  mutable std::mutex mutex;
  std::uint64_t granted = 0;                      // guarded by mutex
  std::map<std::string, std::uint64_t> expected;  // guarded by mutex
  std::multiset<std::string> present;             // guarded by mutex; models with a grant
};

MemoryGrant::~MemoryGrant() {
  if (ledger_ == nullptr) return;
  const std::lock_guard lock(ledger_->mutex);
  ledger_->granted -= bytes_;
  ledger_->present.erase(ledger_->present.find(model_));
}

void MemoryGrant::swap(MemoryGrant& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(model_, other.model_);
  std::swap(bytes_, other.bytes_);
}

std::uint64_t MemoryGrant::extend(std::uint64_t wanted, std::uint64_t least) {
  const std::lock_guard lock(ledger_->mutex);
  const std::uint64_t free = ledger_->free();
  std::uint64_t kept_back = 0;
  std::uint64_t sharers = 1;
  for (const auto& [model, bytes] : ledger_->expected) {
    if (ledger_->present.contains(model)) continue;
    kept_back += bytes;
    ++sharers;
  }
  const std::uint64_t share = (free - std::min(free, kept_back)) / sharers;
  const std::uint64_t taken = std::min({wanted, free, std::max(share, least)});
  ledger_->granted += taken;
  bytes_ += taken;
  return taken;
}

void MemoryGrant::shrink(std::uint64_t bytes) {
  if (ledger_ == nullptr || bytes >= bytes_) return;
  const std::lock_guard lock(ledger_->mutex);
  ledger_->granted -= bytes_ - bytes;
  bytes_ = bytes;
}

MemoryBudget::MemoryBudget(std::uint64_t cap_bytes)
    : ledger_(std::make_shared<MemoryGrant::Ledger>(cap_bytes)) {}

void MemoryBudget::expect(const std::string& model, std::uint64_t bytes) {
  const std::lock_guard lock(ledger_->mutex);
  ledger_->expected[model] = bytes;
}

Result<MemoryGrant> MemoryBudget::grant(const std::string& model, std::uint64_t bytes) {
  const std::lock_guard lock(ledger_->mutex);
  const std::uint64_t free = ledger_->free();
  if (bytes > free) {
    return Error{ErrorCode::kResourceExhausted,
                 "model '" + model + "' needs " + std::to_string(bytes) + " bytes of memory, " +
                     std::to_string(free) + " of " + std::to_string(ledger_->cap) +
                     " bytes are free"};
  }
  ledger_->granted += bytes;
  ledger_->present.insert(model);
  MemoryGrant grant;
  grant.ledger_ = ledger_;
  grant.model_ = model;
  grant.bytes_ = bytes;
  return grant;
}

std::uint64_t MemoryBudget::cap_bytes() const { return ledger_->cap; }

std::uint64_t MemoryBudget::granted_bytes() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->granted;
}

std::uint64_t MemoryBudget::free_bytes() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->free();
}

}  // namespace flotilla::engine
