#include "apps/flotilla/chat_loop.h"

#include <boost/json.hpp>
#include <csignal>
#include <cstdio>

#include "apps/flotilla/console.h"
#include "apps/flotilla/line_editor.h"

namespace flotilla::apps {
namespace bj = boost::json;
namespace {

std::atomic<bool> g_interrupted{false};  // a signal handler can reach nothing but a global
static_assert(std::atomic<bool>::is_always_lock_free);

constexpr const char* kHelp =
    "/clear        forget the conversation\n"
    "/system TEXT  set the system message (empty: none) and forget the conversation\n"
    "/thinking     turn thinking on or off\n"
    "/exit         leave (also Ctrl-D)\n"
    "A line that ends with \\ goes on in the next. Ctrl-C stops an answer.\n";

bool is_system(const bj::array& messages) {
  return !messages.empty() && messages[0].is_object() && messages[0].at("role") == "system";
}

// True when `line` was a command.
bool run_command(const std::string& line, bj::array& messages, AnswerOptions& options,
                 bool& leave) {
  if (line.empty() || line[0] != '/') return false;
  const std::size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (name == "/exit" || name == "/quit" || name == "/bye") {
    leave = true;
  } else if (name == "/clear") {
    messages.resize(is_system(messages) ? 1 : 0);
    std::puts("Forgotten.");
  } else if (name == "/system") {
    messages.clear();
    if (!rest.empty()) messages.push_back(bj::object{{"role", "system"}, {"content", rest}});
    std::puts("Set; the conversation begins anew.");
  } else if (name == "/thinking") {
    options.thinking = !options.thinking;
    std::printf("Thinking is %s.\n", options.thinking ? "on" : "off");
  } else {
    if (name != "/help") std::printf("Unknown command %s.\n", name.c_str());
    std::fputs(kHelp, stdout);
  }
  return true;
}

}  // namespace

std::atomic<bool>& interrupt_flag() { return g_interrupted; }

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = [](int) { g_interrupted.store(true); };
  sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: a read of the terminal must return
}

int chat_loop(engine::TextEngine& engine, bj::array messages, const bj::value& tools,
              AnswerOptions options) {
  install_interrupt_handler();
  LineEditor editor;
  std::printf("%s, context %lld. /help lists the commands, Ctrl-D leaves.\n",
              engine.info().model.c_str(), static_cast<long long>(engine.info().context_length));
  bool leave = false;
  while (!leave) {
    const auto line = editor.read("> ", g_interrupted);
    if (!line) break;
    if (line->find_first_not_of(" \t\n") == std::string::npos) continue;
    if (run_command(*line, messages, options, leave)) continue;
    messages.push_back(bj::object{{"role", "user"}, {"content", *line}});
    g_interrupted.store(false);
    auto answer = stream_answer(engine, messages, tools, options, g_interrupted);
    g_interrupted.store(false);
    if (!answer.ok()) {
      messages.pop_back();  // the turn did not happen: the next one must not build on it
      report(answer.error());
      if (answer.error().code == ErrorCode::kContextLength)
        std::fputs("/clear begins a new conversation.\n", stderr);
      continue;
    }
    messages.push_back(answer->message);
    std::fprintf(stderr, "%s[%s]%s\n", is_terminal(stderr) ? "\033[2m" : "",
                 speed_line(*answer).c_str(), is_terminal(stderr) ? "\033[0m" : "");
  }
  std::puts("");
  return 0;
}

}  // namespace flotilla::apps
