#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>

#include "apps/flotilla_coordinator/models.h"
#include "flotilla/checkpoint/model_digest.h"
#include "flotilla/checkpoint/model_folder.h"
#include "flotilla/coordinator/admin/admin_access.h"
#include "flotilla/download/sources.h"
#include "flotilla/json/json.h"

namespace flotilla::apps {
namespace {

namespace bj = boost::json;

// One line that moves, on a terminal only.
void show_progress(std::uint64_t done, std::uint64_t total) {
  if (::isatty(STDERR_FILENO) == 0 || total == 0) return;
  std::fprintf(stderr, "\rhashing %3llu %% of %.1f MB",
               static_cast<unsigned long long>(done * 100 / total),
               static_cast<double>(total) / 1e6);
  if (done >= total) std::fprintf(stderr, "\n");
}

struct Found {
  std::string source;
  download::Manifest manifest;
  std::string family;
  std::int64_t context_length = 0;
};

Result<Found> look_at_folder(const std::string& argument) {
  std::error_code ec;
  const std::filesystem::path folder = std::filesystem::canonical(argument, ec);
  if (ec || !std::filesystem::is_directory(folder, ec))
    return Error{ErrorCode::kNotFound, "no folder " + argument};
  Found out;
  out.source = folder.string();
  const auto summary = checkpoint::summarize_model(out.source);
  if (!summary.ok())
    return Error{ErrorCode::kInvalidArgument, out.source + ": " + summary.problems.front()};
  out.family = summary.family;
  out.context_length = summary.context_length;
  FLOTILLA_TRY(const auto digest, checkpoint::model_digest(
                                      out.source, checkpoint::DigestMode::kCached, show_progress));
  out.manifest.model = folder.filename().string();
  out.manifest.digest = digest.hex;
  for (const auto& file : digest.files)
    out.manifest.files.push_back({file.path, file.size, file.sha256, {}});
  return out;
}

// Of a source's config.json: what the folder's headers would say.
Status read_config(Found& found, const download::Source& source,
                   const download::FetchOptions& options) {
  for (const auto& file : source.manifest.files) {
    if (file.path != "config.json") continue;
    FLOTILLA_TRY(const std::string text,
                 download::fetch_text({.url = file.url, .token = source.token_for(file.url)},
                                      options, std::size_t{4} << 20));
    FLOTILLA_TRY(const bj::value config, json::parse(text));
    const bj::value* inner = json::find(config, "text_config");
    for (const bj::value* part : {inner, &config}) {
      if (part == nullptr) continue;
      FLOTILLA_TRY(const auto family, json::get_string(*part, "model_type"));
      FLOTILLA_TRY(const auto context,
                   json::get_int(*part, "max_position_embeddings", 0, 1'000'000'000));
      if (found.family.empty()) found.family = family.value_or("");
      if (found.context_length == 0) found.context_length = context.value_or(0);
    }
    return ok_status();
  }
  return Error{ErrorCode::kNotFound, "the source has no config.json"};
}

Result<Found> look_at_url(const ModelsArguments& arguments) {
  download::FetchOptions options;
  options.ca_file = arguments.target.ca_file;
  FLOTILLA_TRY(const std::string token, coordinator::read_admin_key(arguments.token));
  Result<download::Source> source = Error{};
  if (arguments.source.starts_with("hf:")) {
    FLOTILLA_TRY(download::HubSource hub, download::parse_hub_name(arguments.source));
    if (!arguments.hub.empty()) hub.hub = arguments.hub;
    hub.token = token;
    source = download::find_source(hub, options);
  } else {
    source = download::find_source(download::FolderSource{arguments.source, {}}, options);
  }
  if (!source.ok()) return std::move(source).error();
  // The catalog says what every file must be, so each is read once here.
  FLOTILLA_TRY_STATUS(download::fill_in_sums(*source, options, show_progress));
  Found out;
  FLOTILLA_TRY_STATUS(read_config(out, *source, options));
  out.manifest = std::move(source->manifest);
  const std::string& first = out.manifest.files.front().url;
  out.source = first.substr(0, first.rfind('/'));
  return out;
}

bool is_remote(const std::string& source) {
  return source.starts_with("hf:") || !download::origin_of(source).empty();
}

}  // namespace

Status publish_model(const ModelsArguments& arguments) {
  FLOTILLA_TRY(Found found, is_remote(arguments.source) ? look_at_url(arguments)
                                                        : look_at_folder(arguments.source));
  if (!arguments.model.empty()) found.manifest.model = arguments.model;
  FLOTILLA_TRY_STATUS(download::check(found.manifest));
  auto runtime = json::parse(arguments.runtime);
  if (!runtime.ok())
    return Error{ErrorCode::kInvalidArgument, "--runtime: " + runtime.error().message};
  bj::array capabilities;
  for (const std::string& one : arguments.capabilities) capabilities.emplace_back(one);
  const bj::object body{
      {"model", found.manifest.model},
      {"source", found.source},
      {"digest", found.manifest.digest},
      {"files", download::render_files(found.manifest.files)},
      {"family", arguments.family.empty() ? found.family : arguments.family},
      {"context_length",
       arguments.context_length > 0 ? arguments.context_length : found.context_length},
      {"capabilities", std::move(capabilities)},
      {"min_memory_bytes", static_cast<std::int64_t>(arguments.min_memory_gib * (1 << 30))},
      {"runtime_parameters", *runtime},
      {"activate", arguments.activate}};
  FLOTILLA_TRY(const bj::value made,
               ask_admin(arguments.target, "POST", "/v1/admin/models", {}, bj::serialize(body)));
  std::printf("Published '%s' version %s (%s), %zu files, digest %s.\n",
              found.manifest.model.c_str(), bj::serialize(made.at("version")).c_str(),
              std::string(std::string_view(made.at("state").as_string())).c_str(),
              found.manifest.files.size(), found.manifest.digest.c_str());
  for (const bj::value& one : made.at("ignored").as_array()) {
    std::fprintf(stderr, "ignored runtime parameter: %s\n",
                 std::string(std::string_view(one.as_string())).c_str());
  }
  return ok_status();
}

}  // namespace flotilla::apps
