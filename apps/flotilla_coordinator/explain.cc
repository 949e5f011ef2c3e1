// flotilla-coordinator explain: why the next job of a model goes where it goes.
#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/admin_client.h"
#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/json/json.h"

namespace flotilla::apps {
namespace {

namespace bj = boost::json;

struct Arguments {
  AdminTarget target;
  std::string model, node;
  std::int64_t prompt_tokens = 512;
  bool as_json = false;
};

std::string text(const bj::value& object, std::string_view key) {
  const bj::value* value = json::find(object, key);
  if (value == nullptr) return "-";
  return value->is_string() ? std::string(std::string_view(value->get_string()))
                            : bj::serialize(*value);
}

std::string rounded(const bj::value& object, std::string_view key) {
  const bj::value* value = json::find(object, key);
  if (value == nullptr || !value->is_number()) return "-";
  char out[32];
  std::snprintf(out, sizeof out, "%.1f", value->to_number<double>());
  return out;
}

// "0.4 measured", "1024.0 default"
std::string part(const bj::value& expected, std::string_view key) {
  const bj::value* value = json::find(expected, key);
  if (value == nullptr) return "-";
  const std::string source = text(*value, "source");
  return source == "nothing" ? "0" : rounded(*value, "ms") + " " + source;
}

void print_node(const bj::value& node) {
  const bj::value* chosen = json::find(node, "chosen");
  const bj::value* reason = json::find(node, "reason");
  std::string verdict = chosen != nullptr && chosen->is_bool() && chosen->get_bool() ? "chosen"
                        : reason == nullptr                                          ? "candidate"
                                            : text(node, "reason");
  std::string numbers;
  if (reason != nullptr && text(node, "needed") != "0")
    numbers = text(node, "needed") + " of " + text(node, "available");
  if (json::find(node, "changes_in_ms") != nullptr)
    numbers +=
        (numbers.empty() ? "" : ", ") + std::string("in ") + text(node, "changes_in_ms") + " ms";
  if (json::find(node, "shadow") != nullptr)
    numbers += (numbers.empty() ? "" : ", ") + std::string("shadow: ") + text(node, "shadow");
  std::string first = "-", parts;
  if (const bj::value* expected = json::find(node, "expected")) {
    first = rounded(*expected, "first_content_ms");
    parts = "network " + part(*expected, "network") + ", wait " + part(*expected, "wait") +
            ", load " + part(*expected, "load") + ", prefill " + part(*expected, "prefill");
  }
  std::printf("%s%s%s%s\n", padded(text(node, "node"), 20).c_str(), padded(verdict, 19).c_str(),
              padded(first, 12).c_str(), numbers.c_str());
  if (!parts.empty()) std::printf("%s%s\n", padded("", 20).c_str(), parts.c_str());
}

Status run(const Arguments& arguments) {
  std::vector<std::pair<std::string, std::string>> query{
      {"model", arguments.model}, {"prompt_tokens", std::to_string(arguments.prompt_tokens)}};
  if (!arguments.node.empty()) query.emplace_back("node", arguments.node);
  FLOTILLA_TRY(const bj::value answer,
               ask_admin(arguments.target, "GET", "/v1/admin/explain", query));
  if (arguments.as_json) {
    std::printf("%s\n", bj::serialize(answer).c_str());
    return ok_status();
  }
  std::printf("%s%s%s%s\n", padded("NODE", 20).c_str(), padded("VERDICT", 19).c_str(),
              padded("FIRST (MS)", 12).c_str(), "NUMBERS");
  if (const bj::value* nodes = json::find(answer, "nodes"); nodes != nullptr && nodes->is_array()) {
    for (const bj::value& node : nodes->get_array()) print_node(node);
  }
  std::printf("%s waiting\n", text(answer, "queued").c_str());
  return ok_status();
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("explain", "Ask a running coordinator why nodes are chosen, or not");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("model", arguments->model, "name of the model")->required();
  command->add_option("--node", arguments->node, "only this node");
  command->add_option("--prompt-tokens", arguments->prompt_tokens, "length of the prompt")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  command->add_flag("--json", arguments->as_json, "print the answer as it comes");
  add_admin_options(*command, arguments->target);
  command->callback([arguments, &exit_code] {
    if (Status status = run(*arguments); !status.ok()) exit_code = complain(status.error());
  });
}

}  // namespace flotilla::apps
