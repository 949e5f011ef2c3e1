// flotilla models pull: a model from a coordinator, a hub or a plain HTTP folder.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <memory>

#include "apps/flotilla/commands.h"
#include "apps/flotilla/console.h"
#include "apps/flotilla/model_argument.h"
#include "flotilla/base/file.h"
#include "flotilla/base/text.h"
#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/model_digest.h"
#include "flotilla/download/sources.h"

namespace flotilla::apps {
namespace {

struct PullArguments {
  std::string models_dir = default_models_dir();
  std::string source, name;
  std::string coordinator, key;
  std::string hub = download::kDefaultHub, hub_token;
  std::string ca_file;
  std::int64_t version = 0;
  int parallel = 4;
  bool insecure = false, replace = false;
};

std::atomic<bool> g_stop{false};

void on_signal(int) { g_stop = true; }

// Itself, or the first line of the file after '@'.
Result<std::string> secret_of(const std::string& setting) {
  if (!setting.starts_with('@')) return setting;
  FLOTILLA_TRY(const std::string text, read_file(setting.substr(1), 4'096));
  return std::string(trim_ascii(text.substr(0, text.find('\n'))));
}

Result<download::Source> find(const PullArguments& arguments, const download::FetchOptions& fetch) {
  FLOTILLA_TRY(const std::string key, secret_of(arguments.key));
  FLOTILLA_TRY(const std::string hub_token, secret_of(arguments.hub_token));
  if (arguments.source.starts_with("hf:")) {
    FLOTILLA_TRY(download::HubSource hub, download::parse_hub_name(arguments.source));
    hub.hub = arguments.hub;
    hub.token = hub_token;
    return download::find_source(hub, fetch);
  }
  if (!download::origin_of(arguments.source).empty())
    return download::find_source(download::FolderSource{arguments.source, {}}, fetch);
  FLOTILLA_TRY_STATUS(download::check_model_name(arguments.source));
  if (arguments.coordinator.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "from where? --coordinator URL, or hf:OWNER/REPO, or the URL of a folder"};
  }
  return download::find_source(download::CoordinatorSource{.url = arguments.coordinator,
                                                           .key = key,
                                                           .model = arguments.source,
                                                           .version = arguments.version,
                                                           .hub = arguments.hub,
                                                           .hub_token = hub_token},
                               fetch);
}

int pull(const PullArguments& arguments) {
  download::PullOptions options;
  options.models_dir = arguments.models_dir;
  options.replace = arguments.replace;
  options.parallel = arguments.parallel;
  options.fetch.ca_file = arguments.ca_file;
  options.fetch.insecure = arguments.insecure;
  options.stop = [] { return g_stop.load(); };
  auto source = find(arguments, options.fetch);
  if (!source.ok()) return report(source.error());
  download::Manifest& manifest = source->manifest;
  // A coordinator's name is what nodes must call it; an alias means another one.
  if (!arguments.name.empty()) manifest.model = arguments.name;
  const std::string target = arguments.models_dir + "/" + manifest.model;
  if (!manifest.digest.empty()) {
    const auto present = checkpoint::model_digest(target);
    if (present.ok() && present->hex == manifest.digest) {
      std::printf("%s is up to date, digest %s\n", target.c_str(), manifest.digest.c_str());
      return 0;
    }
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second one ends it at once
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ProgressBar bar("pulling " + manifest.model);
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); };
  const auto pulled = download::pull(*source, options);
  bar.finish();
  if (!pulled.ok()) return report(pulled.error());
  std::printf("%s: %zu files, %s (%s fetched), digest %s\n", pulled->folder.c_str(),
              pulled->manifest.files.size(), format_bytes(pulled->manifest.bytes()).c_str(),
              format_bytes(pulled->fetched_bytes).c_str(), pulled->manifest.digest.c_str());
  // What came is what was sent; whether that is a model is another question.
  if (const auto opened = checkpoint::Checkpoint::open(pulled->folder); !opened.ok())
    return report(opened.error());
  return 0;
}

}  // namespace

void add_models_pull(CLI::App& models, int& exit_code) {
  auto arguments = std::make_shared<PullArguments>();
  CLI::App* command = models.add_subcommand(
      "pull", "Download a model: NAME from a coordinator, hf:OWNER/REPO, or the URL of a folder");
  command->add_option("source", arguments->source, "NAME, hf:OWNER/REPO[@REVISION] or http(s) URL")
      ->required();
  command->add_option("--models-dir", arguments->models_dir, "folder of models")
      ->envname("FLOTILLA_MODELS_DIR")
      ->capture_default_str();
  command->add_option("--name", arguments->name, "name of the new folder");
  command->add_option("--coordinator", arguments->coordinator, "address of the coordinator")
      ->envname("FLOTILLA_COORDINATOR_URL");
  command->add_option("--api-key", arguments->key, "key for the coordinator, or @FILE")
      ->envname("FLOTILLA_API_KEY");
  command->add_option("--model-version", arguments->version, "of the catalog; the active one")
      ->check(CLI::Range(1, 1'000'000'000));
  command->add_option("--hub", arguments->hub, "address of the hub")
      ->envname("HF_ENDPOINT")
      ->capture_default_str();
  command->add_option("--hub-token", arguments->hub_token, "token for the hub, or @FILE")
      ->envname("HF_TOKEN");
  command->add_option("--parallel", arguments->parallel, "files at a time")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  command->add_option("--tls-ca-file", arguments->ca_file,
                      "PEM authorities of the server; default: the system's");
  command->add_flag("--insecure", arguments->insecure, "send keys over plain HTTP");
  command->add_flag("--replace", arguments->replace, "put it in the place of an older one");
  command->callback([arguments, &exit_code] { exit_code = pull(*arguments); });
}

}  // namespace flotilla::apps
