#include "flotilla/download/sources.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "flotilla/base/model_files.h"
#include "flotilla/base/sha256.h"
#include "flotilla/base/text.h"
#include "flotilla/json/json.h"

namespace flotilla::download {
namespace {

namespace bj = boost::json;

constexpr std::size_t kMaxManifest = std::size_t{8} << 20, kMaxPage = std::size_t{32} << 20;
constexpr int kMaxPages = 100;
constexpr std::string_view kIndex = "model.safetensors.index.json", kSuffix = ".safetensors";
constexpr std::string_view kManifest = "flotilla-manifest.json";

std::string trimmed(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_side_file(std::string_view name) {
  return std::any_of(std::begin(kModelSideFiles), std::end(kModelSideFiles),
                     [&](const char* known) { return name == known; });
}

Result<std::set<std::string>> weights_of_index(const std::string& text) {
  FLOTILLA_TRY(const bj::value index, json::parse(text));
  const bj::value* map = json::find(index, "weight_map");
  if (map == nullptr || !map->is_object() || map->get_object().empty()) {
    return Error{ErrorCode::kDataLoss, std::string(kIndex) + ": weight_map is missing or empty"};
  }
  std::set<std::string> out;
  for (const auto& member : map->get_object()) {
    if (!member.value().is_string())
      return Error{ErrorCode::kDataLoss, std::string(kIndex) + ": a file name is no text"};
    const std::string name(std::string_view(member.value().get_string()));
    if (name.find('/') != std::string::npos || !check_file_path(name).ok() ||
        !name.ends_with(kSuffix))
      return Error{ErrorCode::kDataLoss, std::string(kIndex) + " names a file outside the folder"};
    out.insert(name);
  }
  return out;
}

// A list of a hub, page by page.
Result<std::vector<ManifestFile>> list_repository(const std::string& first_url,
                                                  const std::string& token,
                                                  const FetchOptions& options) {
  std::vector<ManifestFile> files;
  const std::string origin = origin_of(first_url);
  std::string url = first_url;
  for (int page = 0; !url.empty(); ++page) {
    if (page == kMaxPages || files.size() > 100'000)
      return Error{ErrorCode::kTooLarge, first_url + ": the list of files does not end"};
    FetchHead head;
    FLOTILLA_TRY(const std::string text,
                 fetch_text({.url = url, .token = token}, options, kMaxPage, &head));
    FLOTILLA_TRY(const bj::value list, json::parse(text));
    if (!list.is_array()) return Error{ErrorCode::kDataLoss, first_url + " gave no list of files"};
    for (const bj::value& item : list.get_array()) {
      FLOTILLA_TRY(const auto type, json::get_string(item, "type"));
      if (type && *type != "file") continue;
      ManifestFile file;
      FLOTILLA_TRY(file.path, json::require_string(item, "path"));
      FLOTILLA_TRY(const std::int64_t size,
                   json::require_int(item, "size", 0, static_cast<std::int64_t>(kMaxModelBytes)));
      file.size = static_cast<std::uint64_t>(size);
      if (const bj::value* large = json::find(item, "lfs")) {
        FLOTILLA_TRY(const auto sum, json::get_string(*large, "oid"));
        if (sum) file.sha256 = sum->starts_with("sha256:") ? sum->substr(7) : *sum;
      }
      files.push_back(std::move(file));
    }
    url = head.next;
    if (!url.empty() && origin_of(url) != origin)
      return Error{ErrorCode::kDataLoss, first_url + " goes on at another server"};
  }
  return files;
}

}  // namespace

Result<std::vector<std::string>> choose_files(const std::vector<std::string>& names,
                                              const std::string& index) {
  const std::set<std::string> present(names.begin(), names.end());
  std::set<std::string> weights;
  if (!index.empty()) {
    FLOTILLA_TRY(weights, weights_of_index(index));
  } else if (present.contains("model.safetensors")) {
    weights = {"model.safetensors"};
  } else {
    for (const std::string& name : names) {
      if (name.ends_with(kSuffix) && name.find('/') == std::string::npos) weights.insert(name);
    }
    const bool shards = std::all_of(weights.begin(), weights.end(), [](const std::string& name) {
      return name.starts_with("model-") && name.find("-of-") != std::string::npos;
    });
    if (weights.empty()) return Error{ErrorCode::kNotFound, "no *.safetensors weights"};
    if (weights.size() > 1 && !shards) {
      return Error{ErrorCode::kDataLoss,
                   "several *.safetensors files, and no " + std::string(kIndex)};
    }
  }
  std::vector<std::string> out;
  for (const std::string& name : weights) {
    if (!present.contains(name))
      return Error{ErrorCode::kDataLoss, "weight file " + name + " is missing"};
    out.push_back(name);
  }
  for (const std::string& name : present) {
    if (is_side_file(name)) out.push_back(name);
  }
  if (!present.contains("config.json")) return Error{ErrorCode::kNotFound, "no config.json"};
  std::sort(out.begin(), out.end());
  return out;
}

Result<Source> find_source(const CoordinatorSource& from, const FetchOptions& options) {
  const std::string base = trimmed(from.url);
  std::string url = base + "/v1/catalog/manifest?model=" + escape_path(from.model);
  if (from.version > 0) url += "&version=" + std::to_string(from.version);
  FLOTILLA_TRY(const std::string text,
               fetch_text({.url = url, .token = from.key}, options, kMaxManifest));
  Source out;
  FLOTILLA_TRY(out.manifest, parse_manifest(text));
  if (out.manifest.digest.empty())
    return Error{ErrorCode::kDataLoss, base + " gave a manifest without a digest"};
  for (ManifestFile& file : out.manifest.files) {
    if (file.url.starts_with('/')) file.url = base + file.url;
  }
  if (!from.hub_token.empty()) out.tokens.emplace_back(origin_of(from.hub), from.hub_token);
  if (!from.key.empty()) out.tokens.insert(out.tokens.begin(), {origin_of(base), from.key});
  return out;
}

Result<HubSource> parse_hub_name(const std::string& text) {
  HubSource out;
  std::string rest = text.starts_with("hf:") ? text.substr(3) : text;
  if (const std::size_t at = rest.find('@'); at != std::string::npos) {
    out.revision = rest.substr(at + 1);
    rest.resize(at);
  }
  out.repo = rest;
  const std::size_t slash = rest.find('/');
  const bool sound = slash != std::string::npos && check_model_name(rest.substr(0, slash)).ok() &&
                     check_model_name(rest.substr(slash + 1)).ok() && !out.revision.empty() &&
                     check_file_path(out.revision).ok();
  if (sound) return out;
  return Error{ErrorCode::kInvalidArgument,
               "a model of a hub is written hf:OWNER/REPO or hf:OWNER/REPO@REVISION"};
}

Result<Source> find_source(const HubSource& from, const FetchOptions& options) {
  const std::string hub = trimmed(from.hub);
  const std::string api = hub + "/api/models/" + from.repo;
  std::string revision = from.revision;
  for (std::size_t at; (at = revision.find('/')) != std::string::npos;)
    revision.replace(at, 1, "%2F");  // a branch may have slashes; it is one part of the path
  FLOTILLA_TRY(
      const std::string about,
      fetch_text({.url = api + "/revision/" + revision, .token = from.token}, options, kMaxPage));
  FLOTILLA_TRY(const bj::value info, json::parse(about));
  FLOTILLA_TRY(const std::string commit, json::require_string(info, "sha"));
  if (commit.empty() || commit.find_first_not_of("0123456789abcdef") != std::string::npos)
    return Error{ErrorCode::kDataLoss, api + " gave no commit"};
  FLOTILLA_TRY(const auto files,
               list_repository(api + "/tree/" + commit + "?recursive=1", from.token, options));
  const std::string place = hub + "/" + from.repo + "/resolve/" + commit + "/";
  std::map<std::string, ManifestFile> by_name;
  std::vector<std::string> names;
  for (const ManifestFile& file : files) {
    by_name.emplace(file.path, file);
    names.push_back(file.path);
  }
  std::string index;
  if (by_name.contains(std::string(kIndex))) {
    FLOTILLA_TRY(index, fetch_text({.url = place + std::string(kIndex), .token = from.token},
                                   options, kMaxPage));
  }
  auto chosen = choose_files(names, index);
  if (!chosen.ok())
    return Error{chosen.error().code, "hf:" + from.repo + ": " + chosen.error().message};
  Source out;
  out.manifest.model = last_part(from.repo);
  for (const std::string& name : *chosen) {
    ManifestFile file = by_name.at(name);
    file.url = place + escape_path(name);
    out.manifest.files.push_back(std::move(file));
  }
  if (!from.token.empty()) out.tokens.emplace_back(origin_of(hub), from.token);
  const auto& listed = out.manifest.files;
  if (std::all_of(listed.begin(), listed.end(), [](const auto& f) { return !f.sha256.empty(); }))
    out.manifest.digest = digest_of(listed);
  FLOTILLA_TRY_STATUS(check(out.manifest));
  return out;
}

Result<Source> find_source(const FolderSource& from, const FetchOptions& options) {
  const std::string base = trimmed(without_query(from.url)) + "/";
  Source out;
  if (!from.token.empty()) out.tokens.emplace_back(origin_of(base), from.token);
  auto manifest = fetch_text({.url = base + std::string(kManifest), .token = from.token}, options,
                             kMaxManifest);
  if (manifest.ok()) {
    FLOTILLA_TRY(out.manifest, parse_manifest(*manifest));
    for (ManifestFile& file : out.manifest.files) file.url = base + escape_path(file.path);
    return out;
  }
  if (manifest.error().code != ErrorCode::kNotFound) return std::move(manifest).error();
  out.manifest.model = last_part(trimmed(base));
  std::string index;
  auto found =
      fetch_text({.url = base + std::string(kIndex), .token = from.token}, options, kMaxPage);
  if (found.ok()) {
    index = *found;
  } else if (found.error().code != ErrorCode::kNotFound) {
    return std::move(found).error();
  }
  std::set<std::string> names{"model.safetensors"};
  if (!index.empty()) {
    FLOTILLA_TRY(names, weights_of_index(index));
  }
  const std::set<std::string> weights = names;
  for (const char* name : kModelSideFiles) names.insert(name);
  for (const std::string& name : names) {
    ManifestFile file{name, 0, {}, base + escape_path(name)};
    FetchRequest request{.url = file.url, .token = from.token};
    request.head_only = true;
    FLOTILLA_TRY(const FetchHead head, fetch(request, options, {}));
    const bool needed = weights.contains(name) || name == "config.json";
    if ((head.status == 404 || head.status == 410) && !needed) continue;
    if (!head.ok()) return status_error(head, file.url);
    if (!head.length)
      return Error{ErrorCode::kUnsupported, file.url + ": the server does not say how large it is"};
    file.size = *head.length;
    out.manifest.files.push_back(std::move(file));
  }
  FLOTILLA_TRY_STATUS(check(out.manifest));
  return out;
}

Status fill_in_sums(Source& source, const FetchOptions& options,
                    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  std::uint64_t total = 0, done = 0;
  for (const ManifestFile& file : source.manifest.files)
    total += file.sha256.empty() ? file.size : 0;
  for (ManifestFile& file : source.manifest.files) {
    if (!file.sha256.empty()) continue;
    Sha256 sum;
    std::uint64_t bytes = 0;
    FetchSinks sinks;
    sinks.on_head = [&](const FetchHead& head) -> Status {
      if (!head.ok()) return status_error(head, file.url);
      return ok_status();
    };
    sinks.on_data = [&](std::string_view piece) -> Status {
      bytes += piece.size();
      sum.update(piece);
      if (progress) progress(done + bytes, total);
      return ok_status();
    };
    auto head = fetch({.url = file.url, .token = source.token_for(file.url)}, options, sinks);
    if (!head.ok()) return std::move(head).error();
    if (bytes != file.size) {
      return Error{ErrorCode::kUnavailable, file.url + " gave " + std::to_string(bytes) + " of " +
                                                std::to_string(file.size) + " bytes"};
    }
    done += bytes;
    file.sha256 = to_hex(sum.finish());
  }
  source.manifest.digest = digest_of(source.manifest.files);
  return ok_status();
}

}  // namespace flotilla::download
