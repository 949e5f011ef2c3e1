#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/base/clock.h"
#include "flotilla/coordinator/auth/key_table.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/coordinator/schema.h"

namespace flotilla::apps {
namespace {

// A mistyped name must not become an empty database that knows nothing.
constexpr store::DatabaseOptions kExisting{.create = false};

struct Arguments {
  std::string database = coordinator::CoordinatorConfig().database;
  std::string name;
  std::string id_or_name;
  bool quiet = false;
};

Status create(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, coordinator::open_database(arguments.database));
  FLOTILLA_TRY(const coordinator::NewKey made,
               coordinator::create_key(database, arguments.name, SystemClock().unix_seconds()));
  if (arguments.quiet) {
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
  FLOTILLA_TRY(store::Database database, coordinator::open_database(arguments.database, kExisting));
  FLOTILLA_TRY(const auto keys, coordinator::list_keys(database));
  if (!arguments.quiet)
    std::printf("%s%s%s%s\n", padded("ID", 6).c_str(), padded("KEY", 14).c_str(),
                padded("CREATED (UTC)", 20).c_str(), "STATE        NAME");
  for (const auto& key : keys) {
    std::printf("%s%s%s%s%s\n", padded(std::to_string(key.id.value), 6).c_str(),
                padded(key.prefix + "...", 14).c_str(), padded(date_text(key.created), 20).c_str(),
                padded(key.revoked ? "revoked" : "active", 13).c_str(), key.name.c_str());
  }
  return ok_status();
}

Status revoke(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, coordinator::open_database(arguments.database, kExisting));
  FLOTILLA_TRY(const auto key, coordinator::revoke_key(database, arguments.id_or_name,
                                                       SystemClock().unix_seconds()));
  if (!arguments.quiet) {
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
  const auto add = [&](const char* name, const char* help, Status (*run)(const Arguments&)) {
    CLI::App* command = keys->add_subcommand(name, help);
    command->add_option("--database", arguments->database, "SQLite file of the coordinator")
        ->envname("FLOTILLA_DATABASE")
        ->capture_default_str();
    command->add_flag("-q,--quiet", arguments->quiet, "print only what a script needs");
    command->callback([arguments, run, &exit_code] {
      if (Status status = run(*arguments); !status.ok()) exit_code = complain(status.error());
    });
    return command;
  };
  add("create", "Make a key and print it, once", create)
      ->add_option("--name", arguments->name, "whose it is")
      ->required();
  add("list", "List keys", list);
  add("revoke", "Make a key void", revoke)
      ->add_option("key", arguments->id_or_name, "id or name")
      ->required();
}

}  // namespace flotilla::apps
