// The memory that all models of a process may take together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla::engine {

class MemoryBudget;

// Bytes that were taken from a budget; gives them back when it goes. Move-only. May outlive the
// budget.
class MemoryGrant {
 public:
  MemoryGrant() = default;
  MemoryGrant(MemoryGrant&& other) noexcept { swap(other); }
  MemoryGrant& operator=(MemoryGrant&& other) noexcept {
    swap(other);
    return *this;
  }
  ~MemoryGrant();

  std::uint64_t bytes() const { return bytes_; }
  // Takes at most `wanted` more: what the models that are still expected leave for this one.
  // Returns how much. It is not less than `least` if so much is free.
  std::uint64_t extend(std::uint64_t wanted, std::uint64_t least);
  // Gives back all but `bytes`; nothing when it has less.
  void shrink(std::uint64_t bytes);

 private:
  friend class MemoryBudget;
  struct Ledger;
  void swap(MemoryGrant& other) noexcept;
  std::shared_ptr<Ledger> ledger_;
  std::string model_;
  std::uint64_t bytes_ = 0;
};

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t cap_bytes);

  // A model that will be loaded: others leave `bytes` for it, and a fair share of what they would
  // like beyond their need. Ends with the grant of that name, and begins again when that goes.
  void expect(const std::string& model, std::uint64_t bytes);
  // Takes `bytes` for a model. kResourceExhausted says what it needs and what there is.
  Result<MemoryGrant> grant(const std::string& model, std::uint64_t bytes);

  std::uint64_t cap_bytes() const;
  std::uint64_t granted_bytes() const;
  std::uint64_t free_bytes() const;

 private:
  std::shared_ptr<MemoryGrant::Ledger> ledger_;
};

}  // namespace flotilla::engine
