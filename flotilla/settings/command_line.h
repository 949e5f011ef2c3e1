// Parsing of a whole command line with errors that help.
#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace flotilla::settings {

struct CommandLineResult {
  bool done = false;  // help was printed, or the line was wrong: leave with exit_code
  int exit_code = 0;  // 2 for a wrong line, which is then explained on stderr
};
// For an option whose variable several commands share: `value` is the environment's to begin with,
// and the flag's where there is one. CLI11's own envname() would apply the environment for every
// command that was not called, after the flags of the one that was.
void take_from_environment(CLI::Option& option, std::string& value, const char* name);
// Parses and runs the callbacks of the command.
CommandLineResult parse_command_line(CLI::App& app, int argc, const char* const* argv);

}  // namespace flotilla::settings
