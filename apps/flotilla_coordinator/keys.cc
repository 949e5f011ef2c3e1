#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "apps/flotilla_coordinator/database_command.h"
#include "flotilla/base/clock.h"
#include "flotilla/coordinator/auth/key_table.h"

namespace flotilla::apps {
namespace {

struct Arguments {
  DatabaseTarget target;
  std::string name;
  std::string id_or_name;
  std::string account = "default";
  std::string expires;
  std::string spend_limit;
  std::int64_t requests = 0, input_tokens = 0, output_tokens = 0;  // per minute; 0: no limit
};

Status create(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open());
  const std::int64_t now = SystemClock().unix_seconds();
  FLOTILLA_TRY(const coordinator::Account account,
               coordinator::find_account(database, arguments.account));
  coordinator::KeyOrder order{
      .name = arguments.name, .account = account.id, .expires = {}, .spend_limit = {}};
  if (!arguments.expires.empty()) {
    FLOTILLA_TRY(order.expires, parse_time(arguments.expires, now));
  }
  if (!arguments.spend_limit.empty()) {
    FLOTILLA_TRY(order.spend_limit, coordinator::parse_amount(arguments.spend_limit));
  }
  const auto limit = [](std::int64_t value) {
    return value > 0 ? std::optional(value) : std::nullopt;
  };
  order.limits = {limit(arguments.requests), limit(arguments.input_tokens),
                  limit(arguments.output_tokens)};
  FLOTILLA_TRY(const coordinator::NewKey made, coordinator::create_key(database, order, now));
  if (arguments.target.quiet) {
    std::printf("%s\n", made.key.c_str());
  } else {
    std::printf("%s\n", made.key.c_str());
    std::fprintf(
        stderr, "Key %llu (%s). It is shown only now; a running server knows it within a second.\n",
        static_cast<unsigned long long>(made.record.id.value), made.record.name.c_str());
  }
  return ok_status();
}

Status list(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  FLOTILLA_TRY(const auto keys, coordinator::list_keys(database));
  const std::int64_t now = SystemClock().unix_seconds();
  const std::vector<std::size_t> columns{6, 14, 20, 13};
  if (!arguments.target.quiet) print_row(columns, {"ID", "KEY", "CREATED (UTC)", "STATE", "NAME"});
  for (const auto& key : keys) {
    const char* state = key.revoked ? "revoked" : key.active_at(now) ? "active" : "expired";
    print_row(columns, {std::to_string(key.id.value), key.prefix + "...", date_text(key.created),
                        state, key.name});
  }
  return ok_status();
}

Status revoke(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  FLOTILLA_TRY(const auto key, coordinator::revoke_key(database, arguments.id_or_name,
                                                       SystemClock().unix_seconds()));
  if (!arguments.target.quiet) {
    std::printf("Key %llu (%s) is revoked; a running server refuses it within a second.\n",
                static_cast<unsigned long long>(key.id.value), key.name.c_str());
  }
  return ok_status();
}

}  // namespace

void add_keys(CLI::App& app, int& exit_code) {
  CLI::App* keys = app.add_subcommand("keys", "API keys of clients");
  keys->require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();
  const auto add = database_commands(*keys, arguments, exit_code);
  CLI::App* creating = add("create", "Make a key and print it, once", create);
  creating->add_option("--name", arguments->name, "whose it is")->required();
  creating->add_option("--account", arguments->account, "that pays for it")->capture_default_str();
  creating->add_option("--expires", arguments->expires, "2026-11-30, or +90d");
  creating->add_option("--spend-limit", arguments->spend_limit, "in all, like 25.00");
  creating->add_option("--requests-per-minute", arguments->requests, "limit of its rate");
  creating->add_option("--input-tokens-per-minute", arguments->input_tokens, "limit of its rate");
  creating->add_option("--output-tokens-per-minute", arguments->output_tokens, "limit of its rate");
  add("list", "List keys", list);
  add("revoke", "Make a key void", revoke)
      ->add_option("key", arguments->id_or_name, "id or name")
      ->required();
}

}  // namespace flotilla::apps
