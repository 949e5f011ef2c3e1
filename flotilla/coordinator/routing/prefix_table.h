// Which nodes hold the beginning of which conversation in their prefix caches, as far as one can
// tell from outside: they computed it lately. Core strand only.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "flotilla/base/clock.h"
#include "flotilla/base/ids.h"
#include "flotilla/coordinator/routing/route_ask.h"

namespace flotilla::coordinator {

struct PrefixLimits {
  std::size_t max_entries = 50'000;
  std::chrono::minutes kept_for{10};  // since it was last used there
};

class PrefixTable {
 public:
  static constexpr std::size_t kHolders = 4;  // of one prefix; the oldest gives way

  struct Holder {
    ProviderId provider;
    std::int64_t tokens = 0;  // of the prefix
    Clock::Instant at{};
  };

  explicit PrefixTable(PrefixLimits limits = {}) : limits_(limits) {}

  void note(std::uint64_t prefix, const ProviderId& provider, std::int64_t tokens,
            Clock::Instant now);
  // The node did not have it after all.
  void forget(std::uint64_t prefix, const ProviderId& provider);
  // Calls `visit` with the holders of the prefixes from the longest to the shortest; stops when it
  // says so. A node comes once, with its longest.
  template <class Visit>
  void visit(std::span<const Prefix> prefixes, Clock::Instant now, Visit&& visit) const {
    for (std::size_t i = prefixes.size(); i-- > 0;) {
      const auto at = entries_.find(prefixes[i].hash);
      if (at == entries_.end()) continue;
      for (const Holder& holder : at->second.holders) {
        if (holder.tokens == 0 || now - holder.at >= limits_.kept_for) continue;
        if (!visit(holder, prefixes[i])) return;
      }
    }
  }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::array<Holder, kHolders> holders;
    std::list<std::uint64_t>::iterator place;
  };
  const PrefixLimits limits_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::list<std::uint64_t> order_;  // used longest ago first
};

}  // namespace flotilla::coordinator
