#include "flotilla/settings/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "flotilla/base/text.h"

namespace flotilla::settings {
namespace {

// The command that the line got to, outermost first.
std::vector<CLI::App*> chosen(CLI::App& app) {
  std::vector<CLI::App*> chain = {&app};
  while (!chain.back()->get_subcommands().empty()) {
    chain.push_back(chain.back()->get_subcommands().back());
  }
  return chain;
}

std::string name_of(const std::vector<CLI::App*>& chain) {
  std::string name;
  for (CLI::App* app : chain) {
    if (!app->get_name().empty()) name += (name.empty() ? "" : " ") + app->get_name();
  }
  return name;
}

// What is wrong with `word`, which no option or command of `app` (after parsing) takes: names the
// command, the word, and the nearest that is known.
std::string unknown_word(CLI::App& app, const std::string& word) {
  const std::vector<CLI::App*> chain = chosen(app);
  const bool is_option = word.size() > 1 && word.front() == '-';
  std::vector<std::string> known;
  for (CLI::App* command : chain) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  }
  if (!is_option) {
    known.clear();
    for (const CLI::App* sub : chain.back()->get_subcommands([](CLI::App*) { return true; })) {
      known.push_back(sub->get_name());
    }
  }
  const std::string bare = is_option ? word.substr(0, word.find('=')) : word;
  const char* what = is_option ? "option" : known.empty() ? "argument" : "command";
  std::string message = name_of(chain) + ": unknown " + std::string(what) + " '" + bare + "'";
  if (const auto near = nearest_name(bare, known)) message += "; did you mean '" + *near + "'?";
  return message;
}

}  // namespace

void take_from_environment(CLI::Option& option, std::string& value, const char* name) {
  option.description(option.get_description() + " (Env:" + name + ")");
  if (const char* set = std::getenv(name); set != nullptr && *set != '\0') value = set;
}

CommandLineResult parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return {};
  } catch (const CLI::ParseError& error) {
    const bool is_help = error.get_exit_code() == 0;
    const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
    if (is_help || extras.empty()) return {.done = true, .exit_code = app.exit(error) == 0 ? 0 : 2};
    std::fprintf(stderr, "%s\nRun with --help for more information.\n",
                 unknown_word(app, extras.front()).c_str());
    return {.done = true, .exit_code = 2};
  }
}

}  // namespace flotilla::settings
