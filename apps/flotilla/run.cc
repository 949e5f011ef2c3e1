// flotilla run: chat in the terminal, or answer once.
#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "apps/flotilla/chat_loop.h"
#include "apps/flotilla/commands.h"
#include "apps/flotilla/console.h"
#include "apps/flotilla/load_model.h"
#include "apps/flotilla/model_argument.h"
#include "flotilla/base/text.h"
#include "flotilla/json/json.h"

namespace flotilla::apps {
namespace bj = boost::json;
namespace {

struct RunOptions {
  LoadOptions load;
  AnswerOptions answer;
  std::string messages_file, tools_file, system, prompt;
};

struct Conversation {
  bj::array messages;
  bj::value tools;
};

// FILE is an array of messages, or an object with "messages" and possibly "tools" and
// "enable_thinking".
Result<Conversation> read_conversation(RunOptions& options) {
  Conversation out;
  if (!options.messages_file.empty()) {
    FLOTILLA_TRY(bj::value file, json::parse_file(options.messages_file));
    if (file.is_object()) {
      if (const bj::value* tools = json::find(file, "tools")) out.tools = *tools;
      FLOTILLA_TRY(const auto thinking, json::get_bool(file, "enable_thinking"));
      options.answer.thinking = options.answer.thinking || thinking.value_or(false);
      const bj::value* messages = json::find(file, "messages");
      file = messages != nullptr ? bj::value(*messages) : bj::value(nullptr);
    }
    if (!file.is_array()) {
      return Error{
          ErrorCode::kInvalidArgument,
          options.messages_file + ": expected an array of messages, or an object with 'messages'"};
    }
    out.messages = file.get_array();
  }
  if (!options.tools_file.empty()) {
    FLOTILLA_TRY(out.tools, json::parse_file(options.tools_file));
    if (!out.tools.is_array())
      return Error{ErrorCode::kInvalidArgument,
                   options.tools_file + ": expected an array of tools"};
  }
  if (!options.system.empty()) {
    out.messages.insert(out.messages.begin(),
                        bj::object{{"role", "system"}, {"content", options.system}});
  }
  return out;
}

int answer_once(engine::TextEngine& engine, const Conversation& conversation,
                const AnswerOptions& options) {
  install_interrupt_handler();
  auto answer =
      stream_answer(engine, conversation.messages, conversation.tools, options, interrupt_flag());
  if (!answer.ok()) return report(answer.error());
  if (is_terminal(stderr))
    std::fprintf(stderr, "\033[2m[%s]\033[0m\n", speed_line(*answer).c_str());
  return answer->finish.reason == engine::FinishReason::kCancelled ? 130 : 0;
}

int run(RunOptions& options) {
  auto conversation = read_conversation(options);
  if (!conversation.ok()) return report(conversation.error());
  const bool piped = !is_terminal(stdin) && options.messages_file.empty() &&
                     options.prompt.empty() && options.answer.text.empty();
  if (piped) options.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (!options.prompt.empty()) {
    if (!is_valid_utf8(options.prompt)) {
      return report(Error{ErrorCode::kInvalidArgument, "the prompt is not valid UTF-8"});
    }
    conversation->messages.push_back(bj::object{{"role", "user"}, {"content", options.prompt}});
  } else if (piped) {
    return report(Error{ErrorCode::kInvalidArgument, "standard input is empty: nothing to answer"});
  }
  auto engine = load_model(options.load);
  if (!engine.ok()) return report(engine.error());
  if (!options.messages_file.empty() || !options.prompt.empty() || !options.answer.text.empty()) {
    return answer_once(**engine, *conversation, options.answer);
  }
  return chat_loop(**engine, conversation->messages, conversation->tools, options.answer);
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<RunOptions>();
  o->load.models_dir = default_models_dir();
  CLI::App* command =
      app.add_subcommand("run", "Chat with a model in the terminal, or answer once");
  command->add_option("model", o->load.model,
                      "Folder, or name in the models folder; default: the only or bundled one");
  command->add_option("--models-dir", o->load.models_dir, "Folder with models")
      ->envname("FLOTILLA_MODELS_DIR")
      ->capture_default_str();
  command->add_option("--threads", o->load.threads, "Threads for the kernels (0: one per core)")
      ->envname("FLOTILLA_THREADS")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--pin-threads", o->load.pin_threads, "Keep them on cores of their own")
      ->envname("FLOTILLA_PIN_THREADS");
  command
      ->add_option("--device", o->load.engine.device,
                   "What computes: auto (a card that can be used, else the CPU), cpu, cuda, cuda:N")
      ->envname("FLOTILLA_DEVICE")
      ->capture_default_str();
  command->add_option("--messages", o->messages_file, "Answer this conversation (JSON) and leave")
      ->type_name("FILE");
  command->add_option("--tools", o->tools_file, "Tools that the model may call (JSON array)")
      ->type_name("FILE");
  command->add_option("--prompt", o->prompt, "Answer this and leave")->excludes("--messages");
  command
      ->add_option("--text", o->answer.text,
                   "Continue this plain text, without the chat template, and leave")
      ->excludes("--messages")
      ->excludes("--prompt");
  command->add_option("--system", o->system, "System message");
  command->add_flag("--thinking", o->answer.thinking, "Let the model think first");
  command->add_flag(
      "--raw", o->answer.raw,
      "Print the exact completion, control tokens included; greedy unless --temperature is given");
  command->add_option("--max-tokens", o->answer.max_tokens, "Longest answer")
      ->check(CLI::PositiveNumber);
  command->add_option("--temperature", o->answer.temperature, "0: greedy; default: the model's own")
      ->check(CLI::Range(0.0, 2.0));
  command->add_option("--top-p", o->answer.top_p)->check(CLI::Range(0.0, 1.0));
  command->add_option("--top-k", o->answer.top_k)->check(CLI::Range(0, 1000000));
  command->add_option("--seed", o->answer.seed, "Makes sampling repeatable")
      ->check(CLI::NonNegativeNumber);
  command->callback([o, &exit_code] { exit_code = run(*o); });
}

}  // namespace flotilla::apps
