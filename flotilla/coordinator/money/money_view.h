// Prices, owners and limits as they are now.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/money/accounts.h"
#include "flotilla/coordinator/money/prices.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

// What holds now, for those who must not wait for the database. Immutable.
struct MoneyView {
  PriceBook prices;
  std::unordered_map<ProviderId, AccountId> owners;      // of nodes
  std::unordered_map<std::uint64_t, Limits> key_limits;  // of keys that have any
  std::unordered_map<std::uint64_t, Limits> account_limits;
};

Result<std::shared_ptr<const MoneyView>> read_money_view(store::Database& database);

}  // namespace flotilla::coordinator
