// The frame of subcommands that work on the coordinator's database, running or not.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/store/database.h"

namespace CLI {
class App;
}

namespace flotilla::apps {

struct DatabaseTarget {
  DatabaseTarget();
  // Makes the database when there is none.
  Result<store::Database> open() const;
  // A mistyped name must not become an empty database that knows nothing.
  Result<store::Database> open_existing() const;

  std::string database;
  bool quiet = false;  // print only what a script needs
};

// A subcommand with --database and --quiet; an error of `run` is printed and sets the exit code.
// `target` and what `run` refers to must live until the command line is parsed.
CLI::App* add_database_command(CLI::App& group, const char* name, const char* help,
                               DatabaseTarget& target, int& exit_code, std::function<Status()> run);

// Adds such subcommands to `group`. Arguments has a DatabaseTarget `target`.
template <class Arguments>
auto database_commands(CLI::App& group, std::shared_ptr<Arguments> arguments, int& exit_code) {
  return [&group, arguments, &exit_code](const char* name, const char* help,
                                         Status (*run)(const Arguments&)) {
    return add_database_command(group, name, help, arguments->target, exit_code,
                                [arguments, run] { return run(*arguments); });
  };
}

// A line of a table: each cell but the last is at least so wide, blank included.
void print_row(const std::vector<std::size_t>& widths, const std::vector<std::string>& cells);

}  // namespace flotilla::apps
