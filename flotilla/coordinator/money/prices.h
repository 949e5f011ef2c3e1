// Prices of models, with their history: a row is never changed, a newer one takes its place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/coordinator/money/amount.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

// Its price holds for every model that has none of its own.
inline constexpr std::string_view kEveryModel = "*";

struct PriceRow {
  std::int64_t id = 0;
  std::string model;  // or "*"
  Price price;
  std::int64_t since = 0;  // unix seconds; may lie ahead
};

// All rows, in memory. Immutable; copied by its users.
class PriceBook {
 public:
  PriceBook() = default;
  explicit PriceBook(const std::vector<PriceRow>& rows);
  // The row in force at `now`; null where nothing was ever set for it.
  const PriceRow* in_force(const std::string& model, std::int64_t now) const;
  const PriceRow* by_id(std::int64_t id) const;
  bool empty() const { return by_id_.empty(); }

 private:
  std::map<std::int64_t, PriceRow> by_id_;
  std::map<std::string, std::vector<std::int64_t>> by_model_;  // ids, oldest first
};

// `since` must not lie before `now`: what has happened keeps its price.
Result<PriceRow> set_price(store::Database& database, const std::string& model, const Price& price,
                           std::int64_t since, std::int64_t now);
// By model, oldest first.
Result<std::vector<PriceRow>> list_prices(store::Database& database);

}  // namespace flotilla::coordinator
