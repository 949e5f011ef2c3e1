// Parsing of a whole command line with errors that help.
#pragma once

namespace CLI {
class App;
}

namespace flotilla::settings {

struct CommandLineResult {
  bool done = false;  // help was printed, or the line was wrong: leave with exit_code
  int exit_code = 0;  // 2 for a wrong line, which is then explained on stderr
};
// Parses and runs the callbacks of the command.
CommandLineResult parse_command_line(CLI::App& app, int argc, const char* const* argv);

}  // namespace flotilla::settings
