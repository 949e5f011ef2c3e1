#include "apps/flotilla_coordinator/database_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/base/check.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/settings/command_line.h"

namespace flotilla::apps {

DatabaseTarget::DatabaseTarget() : database(coordinator::CoordinatorConfig().database) {}

Result<store::Database> DatabaseTarget::open() const {
  return coordinator::open_database(database);
}

Result<store::Database> DatabaseTarget::open_existing() const {
  return coordinator::open_database(database, {.create = false});
}

CLI::App* add_database_command(CLI::App& group, const char* name, const char* help,
                               DatabaseTarget& target, int& exit_code,
                               std::function<Status()> run) {
  CLI::App* command = group.add_subcommand(name, help);
  CLI::Option* database = command
                              ->add_option("--database", target.database,
                                           "the coordinator's: a SQLite file or postgresql://...")
                              ->capture_default_str();
  settings::take_from_environment(*database, target.database, "FLOTILLA_DATABASE");
  command->add_flag("-q,--quiet", target.quiet, "print only what a script needs");
  command->callback([run = std::move(run), &exit_code] {
    if (Status status = run(); !status.ok()) exit_code = complain(status.error());
  });
  return command;
}

void print_row(const std::vector<std::size_t>& widths, const std::vector<std::string>& cells) {
  FLOTILLA_CHECK(cells.size() == widths.size() + 1, "a width for every cell but the last");
  std::string line;
  for (std::size_t i = 0; i < widths.size(); ++i) line += padded(cells[i] + " ", widths[i]);
  std::printf("%s%s\n", line.c_str(), cells.back().c_str());
}

}  // namespace flotilla::apps
