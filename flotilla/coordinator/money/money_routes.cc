#include "flotilla/coordinator/money/money_routes.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/coordinator/admin/query.h"
#include "flotilla/coordinator/money/route_tools.h"
#include "flotilla/coordinator/money/usage_report.h"
#include "flotilla/json/json.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

constexpr std::size_t kMaxLiveKeys = 1'000;  // that an account can make itself

// A key with limits could make one without.
Status may_make_keys(store::Database& database, const MoneyCall& call) {
  FLOTILLA_TRY(const auto keys, list_keys(database, call.account));
  for (const KeyRecord& key : keys) {
    if (key.id != call.key) continue;
    if (!key.expires && !key.spend_limit && key.limits.none()) return ok_status();
    return Error{ErrorCode::kPermissionDenied,
                 "a key with limits of its own makes and revokes no other keys"};
  }
  return Error{ErrorCode::kUnauthenticated, "the API key is not valid"};
}

Answer show_account(store::Database& database, const MoneyCall& call, std::int64_t) {
  FLOTILLA_TRY(const Account account, find_account(database, call.account));
  return json_answer(render_account(account));
}

Answer show_keys(store::Database& database, const MoneyCall& call, std::int64_t) {
  FLOTILLA_TRY(const auto keys, list_keys(database, call.account));
  bj::array data;
  for (const KeyRecord& key : keys) data.push_back(render_key(key));
  return json_answer(bj::object{{"object", "list"}, {"data", std::move(data)}});
}

Answer make_key(store::Database& database, const MoneyCall& call, std::int64_t now) {
  FLOTILLA_TRY(
      const bj::value body,
      parse_body(call.body, {"name", "expires_at", "spend_limit_micro", "requests_per_minute",
                             "input_tokens_per_minute", "output_tokens_per_minute"}));
  KeyOrder order;
  FLOTILLA_TRY(order.name, json::require_string(body, "name"));
  FLOTILLA_TRY(order.expires, json::get_int(body, "expires_at", 0, kMaxAmount));
  FLOTILLA_TRY(order.spend_limit, json::get_int(body, "spend_limit_micro", 0, kMaxAmount));
  FLOTILLA_TRY(order.limits, parse_limits(body));
  order.account = call.account;
  FLOTILLA_TRY_STATUS(may_make_keys(database, call));
  FLOTILLA_TRY(const auto present, list_keys(database, call.account));
  const auto num_live = std::count_if(present.begin(), present.end(),
                                      [&](const KeyRecord& key) { return key.active_at(now); });
  if (static_cast<std::size_t>(num_live) >= kMaxLiveKeys) {
    return Error{ErrorCode::kInvalidArgument, "the account has " + std::to_string(num_live) +
                                                  " active keys and the limit is " +
                                                  std::to_string(kMaxLiveKeys) + "; revoke some"};
  }
  FLOTILLA_TRY(const NewKey made, create_key(database, order, now));
  bj::object out = render_key(made.record);
  out["key"] = made.key;
  return json_answer(out);
}

Answer end_key(store::Database& database, const MoneyCall& call, std::int64_t now) {
  if (call.argument != std::to_string(call.key.value)) {
    FLOTILLA_TRY_STATUS(may_make_keys(database, call));
  }
  // By id only: a name could mean another key tomorrow.
  FLOTILLA_TRY(const auto keys, list_keys(database, call.account));
  const bool is_known = std::any_of(keys.begin(), keys.end(), [&](const KeyRecord& key) {
    return std::to_string(key.id.value) == call.argument;
  });
  if (!is_known) return Error{ErrorCode::kNotFound, "the account has no key with this id", "id"};
  FLOTILLA_TRY(const KeyRecord key, revoke_key(database, call.argument, now, call.account));
  return json_answer(render_key(key));
}

Answer show_usage(store::Database& database, const MoneyCall& call, std::int64_t now,
                  bool all_accounts) {
  FLOTILLA_TRY(UsageQuestion question, parse_usage_question(call.query, day_of(now), all_accounts));
  if (!all_accounts) question.account = call.account;
  const std::string format = query_value(call.query, "format").value_or("json");
  if (format != "json" && format != "csv") {
    return Error{ErrorCode::kInvalidArgument, "format is json or csv", "format"};
  }
  FLOTILLA_TRY(const auto lines, report_usage(database, question));
  net::HttpResponse response{.status = 200, .headers = {}, .body = {}};
  response.headers.add("Content-Type",
                       format == "csv" ? "text/csv; charset=utf-8" : "application/json");
  response.body = format == "csv" ? usage_as_csv(question, lines) : usage_as_json(question, lines);
  return response;
}

}  // namespace

std::vector<serving::ExtraRoute> money_routes(const MoneyDesk& desk) {
  std::vector<serving::ExtraRoute> routes{
      money_route(desk, "GET", "/v1/account", "account", Who::kKey, show_account),
      money_route(desk, "GET", "/v1/keys", "keys", Who::kKey, show_keys),
      money_route(desk, "POST", "/v1/keys", "keys", Who::kKey, make_key),
      money_route(desk, "DELETE", "/v1/keys/{id}", "key", Who::kKey, end_key),
      money_route(desk, "GET", "/v1/usage", "usage", Who::kKey,
                  [](store::Database& database, const MoneyCall& call, std::int64_t now) {
                    return show_usage(database, call, now, false);
                  }),
      money_route(desk, "GET", "/v1/admin/usage", "admin_usage", Who::kAdmin,
                  [](store::Database& database, const MoneyCall& call, std::int64_t now) {
                    return show_usage(database, call, now, true);
                  }),
  };
  for (serving::ExtraRoute& route : admin_money_routes(desk)) routes.push_back(std::move(route));
  return routes;
}

}  // namespace flotilla::coordinator
