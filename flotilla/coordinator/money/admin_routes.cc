// Accounts, prices, deposits and withdrawals, for admins.
#include <boost/json.hpp>

#include "flotilla/coordinator/money/prices.h"
#include "flotilla/coordinator/money/route_tools.h"
#include "flotilla/json/json.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

Answer show_accounts(store::Database& database, const MoneyCall&, std::int64_t) {
  FLOTILLA_TRY(const auto accounts, list_accounts(database));
  bj::array data;
  for (const Account& account : accounts) data.push_back(render_account(account));
  return json_answer(bj::object{{"object", "list"}, {"data", std::move(data)}});
}

Answer make_account(store::Database& database, const MoneyCall& call, std::int64_t now) {
  FLOTILLA_TRY(const bj::value body,
               parse_body(call.body, {"name", "requests_per_minute", "input_tokens_per_minute",
                                      "output_tokens_per_minute"}));
  FLOTILLA_TRY(const std::string name, json::require_string(body, "name"));
  FLOTILLA_TRY(const Limits limits, parse_limits(body));
  FLOTILLA_TRY(Account account, create_account(database, name, now));
  if (!limits.none()) FLOTILLA_TRY_STATUS(set_account_limits(database, name, limits));
  account.limits = limits;
  return json_answer(render_account(account));
}

Answer limit_account(store::Database& database, const MoneyCall& call, std::int64_t) {
  FLOTILLA_TRY(const bj::value body,
               parse_body(call.body, {"requests_per_minute", "input_tokens_per_minute",
                                      "output_tokens_per_minute"}));
  FLOTILLA_TRY(const Limits limits, parse_limits(body));
  FLOTILLA_TRY_STATUS(set_account_limits(database, call.argument, limits));
  FLOTILLA_TRY(const Account account, find_account(database, call.argument));
  return json_answer(render_account(account));
}

Answer move_money(store::Database& database, const MoneyCall& call, Transfer kind,
                  std::int64_t now) {
  FLOTILLA_TRY(const bj::value body,
               parse_body(call.body, {"account", "amount_micro", "idempotency_key", "note"}));
  TransferOrder order;
  order.kind = kind;
  FLOTILLA_TRY(order.account, json::require_string(body, "account"));
  FLOTILLA_TRY(order.amount, json::require_int(body, "amount_micro", 1, kMaxAmount));
  FLOTILLA_TRY(order.reference, json::require_string(body, "idempotency_key"));
  FLOTILLA_TRY(const auto note, json::get_string(body, "note"));
  order.note = note.value_or("");
  FLOTILLA_TRY(const TransferResult made, transfer(database, order, now));
  bj::object out = render_account(made.account);
  out["repeated"] = made.repeated;
  return json_answer(out);
}

Answer deposit(store::Database& database, const MoneyCall& call, std::int64_t now) {
  return move_money(database, call, Transfer::kDeposit, now);
}

Answer withdraw(store::Database& database, const MoneyCall& call, std::int64_t now) {
  return move_money(database, call, Transfer::kWithdrawal, now);
}

bj::object render_price(const PriceRow& row) {
  return {{"object", "price"},
          {"model", row.model},
          {"input_micro", row.price.input},
          {"cached_input_micro", row.price.cached_input},
          {"output_micro", row.price.output},
          {"since", row.since}};
}

Answer show_prices(store::Database& database, const MoneyCall&, std::int64_t) {
  FLOTILLA_TRY(const auto prices, list_prices(database));
  bj::array data;
  for (const PriceRow& row : prices) data.push_back(render_price(row));
  return json_answer(bj::object{{"object", "list"}, {"data", std::move(data)}});
}

Answer make_price(store::Database& database, const MoneyCall& call, std::int64_t now) {
  FLOTILLA_TRY(const bj::value body,
               parse_body(call.body,
                          {"model", "input_micro", "cached_input_micro", "output_micro", "since"}));
  FLOTILLA_TRY(const std::string model, json::require_string(body, "model"));
  Price price;
  FLOTILLA_TRY(price.input, json::require_int(body, "input_micro", 0, kMaxAmount));
  FLOTILLA_TRY(const auto cached, json::get_int(body, "cached_input_micro", 0, kMaxAmount));
  FLOTILLA_TRY(price.output, json::require_int(body, "output_micro", 0, kMaxAmount));
  price.cached_input = cached.value_or(price.input);
  FLOTILLA_TRY(const auto since, json::get_int(body, "since", 0, kMaxAmount));
  FLOTILLA_TRY(const PriceRow row, set_price(database, model, price, since.value_or(now), now));
  return json_answer(render_price(row));
}

}  // namespace

std::vector<serving::ExtraRoute> admin_money_routes(const MoneyDesk& desk) {
  std::vector<serving::ExtraRoute> routes;
  const auto add = [&](std::string method, std::string path, std::string name, Work work) {
    routes.push_back(money_route(desk, std::move(method), std::move(path), std::move(name),
                                 Who::kAdmin, std::move(work)));
  };
  add("GET", "/v1/admin/accounts", "admin_accounts", show_accounts);
  add("POST", "/v1/admin/accounts", "admin_accounts", make_account);
  add("PATCH", "/v1/admin/accounts/{name}", "admin_account", limit_account);
  add("POST", "/v1/admin/deposits", "admin_deposits", deposit);
  add("POST", "/v1/admin/withdrawals", "admin_withdrawals", withdraw);
  add("GET", "/v1/admin/prices", "admin_prices", show_prices);
  add("POST", "/v1/admin/prices", "admin_prices", make_price);
  return routes;
}

}  // namespace flotilla::coordinator
