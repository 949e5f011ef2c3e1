// For the .cc files of the routes: from a call to a task on a database's thread and back.
#pragma once

#include <boost/json/value.hpp>
#include <functional>
#include <string>

#include "flotilla/coordinator/auth/key_table.h"
#include "flotilla/coordinator/money/accounts.h"
#include "flotilla/coordinator/money/money_routes.h"

namespace flotilla::coordinator {

using Reply = serving::ExtraRoute::Reply;

// What a route's work is told.
struct MoneyCall {
  AccountId account;  // of the key; of admins' routes none
  ApiKeyId key;
  std::string argument;  // the last segment of the path
  std::string query;
  std::string body;
};

// What a task answers: a body, or an error in the API's shape.
using Answer = Result<net::HttpResponse>;
using Task = std::function<Answer(store::Database&)>;

// Routes for whoever has a key, and for admins. `work` runs on the reader's thread for GET and on
// the bank's for the rest.
enum class Who { kKey, kAdmin };
using Work = std::function<Answer(store::Database&, const MoneyCall&, std::int64_t now)>;
serving::ExtraRoute money_route(const MoneyDesk& desk, std::string method, std::string path,
                                std::string name, Who who, Work work);

void run_read(const MoneyDesk& desk, const Reply& done, Task task);
void run_write(const MoneyDesk& desk, const Reply& done, Task task);
void reply(const Reply& done, const Answer& answer);

net::HttpResponse json_answer(const boost::json::value& body);
// Strict: an object, and no member besides `known`.
Result<boost::json::value> parse_body(const std::string& body,
                                      std::initializer_list<std::string_view> known);
// requests_per_minute, input_tokens_per_minute, output_tokens_per_minute; null or absent: none.
Result<Limits> parse_limits(const boost::json::value& body);
void add_limits(boost::json::object& to, const Limits& limits);

boost::json::object render_account(const Account& account);
boost::json::object render_key(const KeyRecord& key);

std::vector<serving::ExtraRoute> admin_money_routes(const MoneyDesk& desk);

}  // namespace flotilla::coordinator
