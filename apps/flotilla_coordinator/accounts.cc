#include "flotilla/coordinator/money/accounts.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "apps/flotilla_coordinator/database_command.h"
#include "flotilla/base/clock.h"

namespace flotilla::apps {
namespace {

struct Arguments {
  DatabaseTarget target;
  std::string name, amount, reference, note;
  std::int64_t requests = 0, input_tokens = 0, output_tokens = 0;  // per minute; 0: no limit
};

const std::vector<std::size_t> kColumns{26, 20, 20};

void print(const coordinator::Account& account) {
  print_row(kColumns, {account.name, coordinator::format_amount(account.balance),
                       coordinator::format_amount(account.reserved),
                       coordinator::format_amount(account.available())});
}

void print_header(const Arguments& arguments) {
  if (arguments.target.quiet) return;
  print_row(kColumns, {"NAME", "BALANCE", "RESERVED", "AVAILABLE"});
}

Status create(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open());
  FLOTILLA_TRY(const auto account,
               coordinator::create_account(database, arguments.name, SystemClock().unix_seconds()));
  print_header(arguments);
  print(account);
  return ok_status();
}

Status list(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  FLOTILLA_TRY(const auto accounts, coordinator::list_accounts(database));
  print_header(arguments);
  for (const auto& account : accounts) print(account);
  return ok_status();
}

Status move(const Arguments& arguments, coordinator::Transfer kind) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  FLOTILLA_TRY(const coordinator::Micro amount, coordinator::parse_amount(arguments.amount));
  FLOTILLA_TRY(const auto made,
               coordinator::transfer(
                   database, {kind, arguments.name, amount, arguments.reference, arguments.note},
                   SystemClock().unix_seconds()));
  print_header(arguments);
  print(made.account);
  if (made.repeated && !arguments.target.quiet)
    std::fprintf(stderr, "This was booked before; nothing was changed.\n");
  return ok_status();
}

Status deposit(const Arguments& arguments) {
  return move(arguments, coordinator::Transfer::kDeposit);
}

Status withdraw(const Arguments& arguments) {
  return move(arguments, coordinator::Transfer::kWithdrawal);
}

Status limit(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  const auto value = [](std::int64_t given) {
    return given > 0 ? std::optional(given) : std::nullopt;
  };
  return coordinator::set_account_limits(
      database, arguments.name,
      {value(arguments.requests), value(arguments.input_tokens), value(arguments.output_tokens)});
}

}  // namespace

void add_accounts(CLI::App& app, int& exit_code) {
  CLI::App* accounts = app.add_subcommand("accounts", "Who pays and who earns");
  accounts->require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();
  const auto add = database_commands(*accounts, arguments, exit_code);
  add("create", "Make an account", create)
      ->add_option("name", arguments->name, "its name")
      ->required();
  add("list", "List accounts and what they have", list);
  for (const bool comes_in : {true, false}) {
    CLI::App* command =
        comes_in ? add("deposit", "Book money that came in", deposit)
                 : add("withdraw", "Book money that goes out; at most what is available", withdraw);
    command->add_option("name", arguments->name, "the account")->required();
    command->add_option("amount", arguments->amount, "like 25.00")->required();
    command
        ->add_option("--id", arguments->reference,
                     "idempotency key: the same again changes nothing")
        ->required();
    command->add_option("--note", arguments->note, "for people");
  }
  CLI::App* limiting = add("limit", "Set limits per minute; what is left out has none", limit);
  limiting->add_option("name", arguments->name, "the account")->required();
  limiting->add_option("--requests", arguments->requests, "requests per minute");
  limiting->add_option("--input-tokens", arguments->input_tokens, "tokens per minute");
  limiting->add_option("--output-tokens", arguments->output_tokens, "tokens per minute");
}

}  // namespace flotilla::apps
