// flotilla models list | inspect | verify | pull | synth
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "apps/flotilla/commands.h"
#include "apps/flotilla/console.h"
#include "apps/flotilla/model_argument.h"
#include "flotilla/backend/backend.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/model_digest.h"
#include "flotilla/checkpoint/model_folder.h"
#include "flotilla/engine/text_assets.h"
#include "flotilla/models/causal_lm.h"
#include "flotilla/settings/command_line.h"

namespace flotilla::apps {
namespace {

struct ModelsOptions {
  std::string models_dir = default_models_dir();
  std::string model;
};

// What would stop a load: a tensor that is missing or of another shape, a family that nobody knows.
// Takes the model apart as a load does, without reading its weights.
std::optional<Error> load_problem(const std::string& folder) {
  const auto checkpoint = checkpoint::Checkpoint::open(folder);
  if (!checkpoint.ok()) return checkpoint.error();
  const auto backend = backend::make_cpu_backend({.num_threads = 1, .pack_weights = false});
  if (!backend.ok()) return std::nullopt;
  const Status sound = models::check_model(*checkpoint, **backend);
  if (sound.ok()) return std::nullopt;
  return sound.error();
}

int list(const ModelsOptions& options) {
  auto models = checkpoint::scan_models(options.models_dir);
  if (!models.ok()) return report(models.error());
  if (models->empty()) {
    std::printf(
        "No models in %s. A model is a folder with config.json, tokenizer.json and safetensors.\n",
        options.models_dir.c_str());
    return 0;
  }
  std::size_t width = 4;
  for (const auto& m : *models) width = std::max(width, m.name.size());
  std::printf("%-*s  %-16s %10s %9s  %s\n", static_cast<int>(width), "NAME", "FAMILY", "SIZE",
              "CONTEXT", "FORMAT");
  bool sound = true;
  for (const auto& m : *models) {
    std::printf("%-*s  %-16s %10s %9lld  %s\n", static_cast<int>(width), printable(m.name).c_str(),
                m.family.empty() ? "?" : m.family.c_str(), format_bytes(m.num_bytes).c_str(),
                static_cast<long long>(m.context_length), m.quantization.c_str());
    std::vector<std::string> problems = m.problems;
    if (problems.empty()) {
      if (const auto problem = load_problem(m.folder)) problems.push_back(problem->message);
    }
    for (const std::string& problem : problems)
      std::printf("  problem: %s\n", printable(problem).c_str());
    sound = sound && problems.empty();
  }
  return sound ? 0 : 1;
}

// "chat_template.jinja", and what a test rendering complained about.
std::string describe_template(const std::string& folder) {
  auto checkpoint = checkpoint::Checkpoint::open(folder);
  if (!checkpoint.ok()) return "unknown: " + checkpoint.error().message;
  auto assets = engine::TextAssets::load(folder, checkpoint->config());
  if (!assets.ok()) return "unusable: " + assets.error().message;
  std::string text = (*assets)->template_source();
  if (!(*assets)->template_problem().empty()) text += ", fails: " + (*assets)->template_problem();
  return text;
}

int inspect(const ModelsOptions& options) {
  auto folder = resolve_model(options.model, options.models_dir);
  if (!folder.ok()) return report(folder.error());
  auto inspection = checkpoint::inspect_model(*folder);
  if (!inspection.ok()) return report(inspection.error());
  const auto& s = inspection->summary;
  std::printf(
      "name          %s\nfolder        %s\nfamily        %s\narchitecture  %s\nformat        %s\n",
      s.name.c_str(), s.folder.c_str(), s.family.c_str(), s.architecture.c_str(),
      s.quantization.c_str());
  std::printf(
      "parameters    %lld\nsize          %s in %zu file(s)\ncontext       %lld\ndigest        "
      "%s\n",
      static_cast<long long>(inspection->num_parameters), format_bytes(s.num_bytes).c_str(),
      s.num_files, static_cast<long long>(s.context_length),
      s.digest.empty() ? "(not computed yet; flotilla models verify does)" : s.digest.c_str());
  std::printf("template      %s\n\n", describe_template(*folder).c_str());
  for (const std::string& line : inspection->config) std::printf("  %s\n", printable(line).c_str());
  std::printf("\n");
  std::size_t width = 6;
  for (const auto& t : inspection->tensors) width = std::max(width, t.name.size());
  for (const auto& t : inspection->tensors) {
    std::printf("%-*s  %-16s %10s  %s\n", static_cast<int>(width), printable(t.name).c_str(),
                t.shape.c_str(), format_bytes(t.num_bytes).c_str(), t.format.c_str());
  }
  for (const std::string& note : inspection->notes)
    std::printf("note: %s\n", printable(note).c_str());
  std::vector<std::string> problems = s.problems;
  if (problems.empty()) {
    if (const auto problem = load_problem(*folder)) problems.push_back(problem->message);
  }
  for (const std::string& problem : problems)
    std::printf("problem: %s\n", printable(problem).c_str());
  return problems.empty() ? 0 : 1;
}

int verify(const ModelsOptions& options) {
  auto folder = resolve_model(options.model, options.models_dir);
  if (!folder.ok()) return report(folder.error());
  ProgressBar bar("verifying");
  auto result = checkpoint::verify_model(
      *folder, [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); });
  bar.finish();
  if (!result.ok()) return report(result.error());
  // The bytes may be what they were and still be no model.
  const auto opened = checkpoint::Checkpoint::open(*folder);
  for (const auto& file : result->digest.files) {
    std::printf("%s  %s  %s\n", file.sha256.c_str(), printable(file.path).c_str(),
                format_bytes(file.size).c_str());
  }
  std::printf("model digest %s\n", result->digest.hex.c_str());
  for (const std::string& path : result->damaged) {
    std::printf("damaged: %s changed although its size and time did not\n",
                printable(path).c_str());
  }
  if (!opened.ok()) return report(opened.error());
  return result->damaged.empty() ? 0 : 1;
}

}  // namespace

void add_models(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ModelsOptions>();
  CLI::App* models =
      app.add_subcommand("models", "List, inspect, verify and download model folders");
  models->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, int (*run)(const ModelsOptions&)) {
    CLI::App* command = models->add_subcommand(name, help);
    settings::take_from_environment(
        *command->add_option("--models-dir", options->models_dir, "Folder with models")
             ->capture_default_str(),
        options->models_dir, "FLOTILLA_MODELS_DIR");
    command->callback([options, run, &exit_code] { exit_code = run(*options); });
    return command;
  };
  add("list", "What is there, and what is wrong with it", &list);
  for (CLI::App* command : {add("inspect", "Configuration and tensors of one model", &inspect),
                            add("verify", "Recompute the digest from every byte", &verify)}) {
    command->add_option("model", options->model, "Folder, or name in the models folder");
  }
  add_models_pull(*models, exit_code);
  add_models_synth(*models, exit_code);
}

}  // namespace flotilla::apps
