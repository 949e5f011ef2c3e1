// flotilla-coordinator models: the catalog, through a running coordinator.
#include "apps/flotilla_coordinator/models.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/json/json.h"

namespace flotilla::apps {
namespace {

namespace bj = boost::json;

std::string text(const bj::value& object, std::string_view key) {
  const bj::value* value = json::find(object, key);
  if (value == nullptr) return "-";
  return value->is_string() ? std::string(std::string_view(value->get_string()))
                            : bj::serialize(*value);
}

std::string size_text(const bj::value& object) {
  const bj::value* value = json::find(object, "bytes");
  char out[32];
  std::snprintf(out, sizeof out, "%.1f MB",
                value != nullptr && value->is_number() ? value->to_number<double>() / 1e6 : 0.0);
  return out;
}

Result<bj::value> entries(const ModelsArguments& arguments) {
  std::vector<std::pair<std::string, std::string>> query;
  if (!arguments.model.empty()) query.emplace_back("model", arguments.model);
  return ask_admin(arguments.target, "GET", "/v1/admin/models", query);
}

Status list(const ModelsArguments& arguments) {
  FLOTILLA_TRY(const bj::value answer, entries(arguments));
  if (arguments.as_json) {
    std::printf("%s\n", bj::serialize(answer).c_str());
    return ok_status();
  }
  std::printf("%s%s%s%s%s\n", padded("MODEL", 32).c_str(), padded("VERSION", 9).c_str(),
              padded("STATE", 11).c_str(), padded("SIZE", 14).c_str(), "DIGEST");
  for (const bj::value& one : answer.at("data").as_array()) {
    std::printf("%s%s%s%s%s\n", padded(text(one, "model") + " ", 32).c_str(),
                padded(text(one, "version"), 9).c_str(), padded(text(one, "state"), 11).c_str(),
                padded(size_text(one), 14).c_str(), text(one, "digest").substr(0, 16).c_str());
  }
  return ok_status();
}

Status show(const ModelsArguments& arguments) {
  if (arguments.model.empty())
    return Error{ErrorCode::kInvalidArgument, "the model's name is empty"};
  FLOTILLA_TRY(const bj::value answer, entries(arguments));
  if (arguments.as_json) {
    std::printf("%s\n", bj::serialize(answer).c_str());
    return ok_status();
  }
  if (answer.at("data").as_array().empty()) {
    return Error{ErrorCode::kNotFound, "the catalog has no model '" + arguments.model + "'"};
  }
  for (const bj::value& one : answer.at("data").as_array()) {
    for (const char* field : {"model", "version", "state", "digest", "source", "family",
                              "context_length", "capabilities", "min_memory_bytes",
                              "resident_bytes", "runtime_parameters", "ignored", "aliases"})
      std::printf("%s%s\n", padded(field, 20).c_str(), text(one, field).c_str());
    for (const bj::value& file : one.at("files").as_array()) {
      std::printf("  %s  %s  %s\n", text(file, "sha256").c_str(), text(file, "path").c_str(),
                  text(file, "size").c_str());
    }
  }
  return ok_status();
}

Status activate(const ModelsArguments& arguments) {
  const bj::object body{{"model", arguments.model}, {"version", arguments.version}};
  FLOTILLA_TRY(const auto done, ask_admin(arguments.target, "POST", "/v1/admin/models/activate", {},
                                          bj::serialize(body)));
  std::printf("'%s' means version %s.\n", arguments.model.c_str(), text(done, "version").c_str());
  return ok_status();
}

Status retire(const ModelsArguments& arguments) {
  bj::object body{{"model", arguments.model}};
  if (arguments.version > 0) body["version"] = arguments.version;
  FLOTILLA_TRY(const auto done, ask_admin(arguments.target, "POST", "/v1/admin/models/retire", {},
                                          bj::serialize(body)));
  std::printf("Retired: %s version(s) of '%s'.\n", text(done, "retired").c_str(),
              arguments.model.c_str());
  return ok_status();
}

Status alias(const ModelsArguments& arguments) {
  if (arguments.remove != arguments.model.empty())
    return Error{ErrorCode::kInvalidArgument, "an alias gets a model, or --remove"};
  bj::object body{{"alias", arguments.alias}};
  if (!arguments.remove) body["model"] = arguments.model;
  FLOTILLA_TRY(const auto done, ask_admin(arguments.target, "POST", "/v1/admin/models/alias", {},
                                          bj::serialize(body)));
  (void)done;
  std::printf(arguments.remove ? "'%s' means nothing now.\n" : "'%s' means '%s'.\n",
              arguments.alias.c_str(), arguments.model.c_str());
  return ok_status();
}

}  // namespace

void add_models(CLI::App& app, int& exit_code) {
  CLI::App* models = app.add_subcommand("models", "The catalog of a running coordinator");
  models->require_subcommand(1);
  auto arguments = std::make_shared<ModelsArguments>();
  const auto add = [&](const char* name, const char* help, Status (*run)(const ModelsArguments&)) {
    CLI::App* command = models->add_subcommand(name, help);
    add_admin_options(*command, arguments->target);
    command->callback([arguments, run, &exit_code] {
      if (Status done = run(*arguments); !done.ok()) exit_code = complain(done.error());
    });
    return command;
  };
  CLI::App* publish = add("publish", "Publish a version of a model", publish_model);
  publish
      ->add_option(
          "source", arguments->source,
          "folder on the coordinator's machine, http(s) URL of one, or hf:OWNER/REPO[@REV]")
      ->required();
  publish->add_option("--name", arguments->model, "its name; that of the folder unless set");
  publish->add_option("--family", arguments->family, "model_type; from its config.json unless set");
  publish->add_option("--context-length", arguments->context_length, "tokens; from config.json")
      ->check(CLI::Range(1, 1'000'000'000));
  publish->add_option("--capability", arguments->capabilities, "like tools or vision; many times");
  publish->add_option("--min-memory-gib", arguments->min_memory_gib, "the smallest machine for it")
      ->check(CLI::Range(0.0, 1e6));
  publish
      ->add_option("--runtime", arguments->runtime,
                   "runtime parameters as JSON, like {\"resident_gb\":16}")
      ->capture_default_str();
  publish->add_flag("--activate", arguments->activate, "the name means it from now on");
  publish->add_option("--hub", arguments->hub, "address of the hub for hf: sources");
  publish->add_option("--hub-token", arguments->token, "its token, or @FILE")->envname("HF_TOKEN");
  CLI::App* listing = add("list", "List models and versions", list);
  listing->add_flag("--json", arguments->as_json, "print the answer as it comes");
  CLI::App* showing = add("show", "Show everything about a model", show);
  showing->add_option("model", arguments->model, "its name")->required();
  showing->add_flag("--json", arguments->as_json, "print the answer as it comes");
  CLI::App* activating = add("activate", "Have the model's name mean a version", activate);
  activating->add_option("model", arguments->model, "its name")->required();
  activating->add_option("version", arguments->version, "its number")->required();
  CLI::App* retiring = add("retire", "End a version, or the whole model", retire);
  retiring->add_option("model", arguments->model, "its name")->required();
  retiring->add_option("version", arguments->version, "its number; all of them unless given");
  CLI::App* naming = add("alias", "Have a further name mean a model", alias);
  naming->add_option("alias", arguments->alias, "the further name")->required();
  naming->add_option("model", arguments->model, "what it means");
  naming->add_flag("--remove", arguments->remove, "it means nothing any more");
}

}  // namespace flotilla::apps
