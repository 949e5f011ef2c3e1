#include "flotilla/coordinator/money/money_view.h"

#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {
namespace {

std::optional<std::int64_t> limit(const store::Row& row, std::size_t column) {
  if (row.is_null(column)) return std::nullopt;
  return row.integer(column);
}

Status read_limits(store::Database& database, std::string_view table,
                   std::unordered_map<std::uint64_t, Limits>& out) {
  FLOTILLA_TRY(const auto rows,
               database.query("SELECT id, requests_per_minute, input_tokens_per_minute, "
                              "output_tokens_per_minute FROM " +
                              std::string(table)));
  for (const store::Row& row : rows) {
    const Limits limits{limit(row, 1), limit(row, 2), limit(row, 3)};
    if (!limits.none()) out[static_cast<std::uint64_t>(row.integer(0))] = limits;
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const MoneyView>> read_money_view(store::Database& database) {
  auto view = std::make_shared<MoneyView>();
  FLOTILLA_TRY(const auto prices, list_prices(database));
  view->prices = PriceBook(prices);
  FLOTILLA_TRY_STATUS(read_limits(database, "api_keys", view->key_limits));
  FLOTILLA_TRY_STATUS(read_limits(database, "accounts", view->account_limits));
  FLOTILLA_TRY(const auto nodes,
               database.query("SELECT public_key, owner FROM nodes WHERE public_key IS NOT NULL "
                              "AND owner IS NOT NULL"));
  for (const store::Row& row : nodes) {
    const auto key = protocol::public_key_from_text(row.text(0));
    if (!key.ok()) continue;  // the registry complains about it
    view->owners[protocol::provider_id(*key)].value = static_cast<std::uint64_t>(row.integer(1));
  }
  return std::shared_ptr<const MoneyView>(std::move(view));
}

}  // namespace flotilla::coordinator
