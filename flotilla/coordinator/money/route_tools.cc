#include "flotilla/coordinator/money/route_tools.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/coordinator/money/bank.h"
#include "flotilla/json/json.h"
#include "flotilla/log/log.h"
#include "flotilla/serving/access.h"
#include "flotilla/serving/replies.h"

namespace flotilla::coordinator {
namespace {

namespace bj = boost::json;

constexpr std::size_t kMaxBodyBytes = 64u << 10;

Result<serving::Caller> identify(const MoneyDesk& desk, const net::HttpRequest& request) {
  const serving::Credentials credentials = serving::read_credentials(request.headers);
  if (credentials.malformed) {
    return Error{ErrorCode::kUnauthenticated,
                 "the API key is empty, malformed, or two different ones were sent"};
  }
  return desk.keys.authenticate(credentials.key, desk.clock.unix_seconds());
}

const Error kBusy{ErrorCode::kUnavailable, "the database has too much to do; try again"};

// What a database says is for the operator.
Answer run(const Task& task, store::Database& database) {
  Answer answer = task(database);
  if (answer.ok()) return answer;
  const ErrorCode code = answer.error().code;
  if (code != ErrorCode::kUnavailable && code != ErrorCode::kInternal) return answer;
  log::error("accounts_not_reached", {{"reason", answer.error().message}});
  return Error{ErrorCode::kUnavailable, "the accounts cannot be reached now; try again"};
}

bj::value or_null(const std::optional<std::int64_t>& value) {
  return value ? bj::value(*value) : bj::value(nullptr);
}

}  // namespace

void reply(const Reply& done, const Answer& answer) {
  done(answer.ok() ? *answer : serving::error_reply(answer.error()));
}

void run_read(const MoneyDesk& desk, const Reply& done, Task task) {
  const bool queued =
      desk.reader.try_post([done, task = std::move(task)](store::Database& database) {
        reply(done, run(task, database));
      });
  if (!queued) reply(done, kBusy);
}

void run_write(const MoneyDesk& desk, const Reply& done, Task task) {
  const bool queued = desk.bank.post([done, task = std::move(task)](store::Database& database) {
    reply(done, run(task, database));
  });
  if (!queued) reply(done, kBusy);
}

serving::ExtraRoute money_route(const MoneyDesk& desk, std::string method, std::string path,
                                std::string name, Who who, Work work) {
  serving::ExtraRoute route;
  const bool reads = method == "GET";
  route.method = std::move(method);
  route.path = std::move(path);
  route.name = std::move(name);
  route.admit = [desk, who](const net::HttpRequest& request) -> Status {
    if (who == Who::kAdmin) return desk.admins.check(request.headers);
    if (auto caller = identify(desk, request); !caller.ok()) return std::move(caller).error();
    return ok_status();
  };
  route.handle = [desk, who, reads, work = std::move(work)](const net::HttpRequest& request,
                                                            const Reply& done) {
    if (request.body.size() > kMaxBodyBytes) {
      return reply(done, Error{ErrorCode::kTooLarge,
                               "the body of " + std::to_string(request.body.size()) +
                                   " bytes exceeds the limit of " + std::to_string(kMaxBodyBytes)});
    }
    MoneyCall call;
    if (who == Who::kKey) {
      const auto caller = identify(desk, request);
      if (!caller.ok()) return reply(done, caller.error());  // revoked just now
      call.account.value = caller->account_id;
      call.key.value = caller->key_id;
    }
    call.argument = request.path.substr(request.path.rfind('/') + 1);
    call.query = request.query;
    call.body = request.body;
    Task task = [work, call = std::move(call), now = desk.clock.unix_seconds()](
                    store::Database& database) { return work(database, call, now); };
    if (reads) {
      run_read(desk, done, std::move(task));
    } else {
      run_write(desk, done, std::move(task));
    }
  };
  return route;
}

net::HttpResponse json_answer(const bj::value& body) {
  return serving::json_reply(200, bj::serialize(body));
}

Result<bj::value> parse_body(const std::string& body,
                             std::initializer_list<std::string_view> known) {
  FLOTILLA_TRY(bj::value value, json::parse(body, {.max_bytes = 64u << 10, .max_depth = 4}));
  if (!value.is_object()) return Error{ErrorCode::kInvalidArgument, "the body is a JSON object"};
  for (const auto& member : value.as_object()) {
    const std::string_view name(member.key());
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Error{ErrorCode::kInvalidArgument, "unknown field", std::string(name)};
    }
  }
  return value;
}

Result<Limits> parse_limits(const bj::value& body) {
  Limits limits;
  FLOTILLA_TRY(limits.requests, json::get_int(body, "requests_per_minute", 1, kMaxAmount));
  FLOTILLA_TRY(limits.input_tokens, json::get_int(body, "input_tokens_per_minute", 1, kMaxAmount));
  FLOTILLA_TRY(limits.output_tokens,
               json::get_int(body, "output_tokens_per_minute", 1, kMaxAmount));
  return limits;
}

void add_limits(bj::object& to, const Limits& limits) {
  to["requests_per_minute"] = or_null(limits.requests);
  to["input_tokens_per_minute"] = or_null(limits.input_tokens);
  to["output_tokens_per_minute"] = or_null(limits.output_tokens);
}

bj::object render_account(const Account& account) {
  bj::object out{{"object", "account"},
                 {"name", account.name},
                 {"balance_micro", account.balance},
                 {"reserved_micro", account.reserved},
                 {"available_micro", account.available()}};
  add_limits(out, account.limits);
  return out;
}

bj::object render_key(const KeyRecord& key) {
  bj::object out{{"object", "key"},
                 {"id", std::to_string(key.id.value)},
                 {"name", key.name},
                 {"prefix", key.prefix},
                 {"created", key.created},
                 {"revoked_at", or_null(key.revoked)},
                 {"expires_at", or_null(key.expires)},
                 {"spend_limit_micro", or_null(key.spend_limit)},
                 {"spent_micro", key.spent}};
  add_limits(out, key.limits);
  return out;
}

}  // namespace flotilla::coordinator
