#include "flotilla/download/manifest.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/base/sha256.h"
#include "flotilla/base/text.h"
#include "flotilla/json/json.h"

namespace flotilla::download {
namespace {

namespace bj = boost::json;

constexpr std::size_t kMaxManifestBytes = std::size_t{8} << 20;
constexpr std::size_t kMaxPath = 512, kMaxSegment = 240, kMaxUrl = 4'096;

Error bad_path(std::string_view path, std::string_view why) {
  // The path is a stranger's: only its harmless characters are repeated.
  std::string shown;
  for (const char c : path.substr(0, 80)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return {ErrorCode::kInvalidArgument, "the file name '" + shown + "' " + std::string(why)};
}

bool is_sum(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool by_path(const ManifestFile& a, const ManifestFile& b) { return a.path < b.path; }

}  // namespace

std::uint64_t Manifest::bytes() const {
  std::uint64_t sum = 0;
  for (const ManifestFile& file : files) sum += file.size;
  return sum;
}

Status check_model_name(std::string_view name) {
  const bool plain = !name.empty() && name.size() <= 128 && name.front() != '.' &&
                     name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' ||
                              c == '+';
                     });
  if (plain) return ok_status();
  return Error{ErrorCode::kInvalidArgument,
               "a model's name is 1 to 128 letters, digits and . _ - +, and begins with a letter, "
               "a digit, _ or +",
               "model"};
}

Status check_file_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPath)
    return bad_path(path, "has not 1 to " + std::to_string(kMaxPath) + " bytes");
  if (!is_valid_utf8(path)) return bad_path(path, "is not UTF-8");
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == ':')
      return bad_path(path, "has a character that no model's file may have");
  }
  if (path.ends_with(".part") || path.ends_with(".part.tag"))
    return bad_path(path, "ends as unfinished downloads do");
  std::string_view rest = path;
  while (true) {
    const std::size_t slash = rest.find('/');
    const std::string_view segment = rest.substr(0, slash);
    if (segment.empty() || segment.front() == '.')
      return bad_path(path, "is absolute, hidden or leads out of its folder");
    if (segment.size() > kMaxSegment) return bad_path(path, "has a part that is too long");
    if (slash == std::string_view::npos) return ok_status();
    rest.remove_prefix(slash + 1);
  }
}

std::string digest_of(std::vector<ManifestFile> files) {
  std::sort(files.begin(), files.end(), by_path);
  Sha256 hash;
  for (const ManifestFile& file : files) {
    hash.update(file.path);
    hash.update(std::string_view("\0", 1));
    hash.update(std::to_string(file.size));
    hash.update(std::string_view("\0", 1));
    hash.update(file.sha256);
    hash.update("\n");
  }
  return to_hex(hash.finish());
}

Status check(const Manifest& manifest) {
  FLOTILLA_TRY_STATUS(check_model_name(manifest.model));
  if (manifest.files.empty() || manifest.files.size() > kMaxFiles) {
    return Error{ErrorCode::kInvalidArgument,
                 "a model has 1 to " + std::to_string(kMaxFiles) + " files, not " +
                     std::to_string(manifest.files.size()),
                 "files"};
  }
  std::vector<std::string_view> paths;
  std::uint64_t bytes = 0;
  bool all_sums = true;
  for (const ManifestFile& file : manifest.files) {
    FLOTILLA_TRY_STATUS(check_file_path(file.path));
    if (file.sha256.empty()) {
      all_sums = false;
    } else if (!is_sum(file.sha256)) {
      return bad_path(file.path, "has a sum that is not 64 lower case hex digits");
    }
    if (file.size > kMaxModelBytes || (bytes += file.size) > kMaxModelBytes) {
      return Error{ErrorCode::kTooLarge,
                   "the model exceeds the limit of " + std::to_string(kMaxModelBytes) + " bytes",
                   "files"};
    }
    paths.push_back(file.path);
  }
  std::sort(paths.begin(), paths.end());
  for (std::size_t i = 1; i < paths.size(); ++i) {
    if (paths[i] == paths[i - 1]) return bad_path(paths[i], "comes twice");
  }
  // A file "a" and a file "a/b": other names may sort between them.
  for (const std::string_view path : paths) {
    for (std::size_t at = path.find('/'); at != std::string_view::npos;
         at = path.find('/', at + 1)) {
      if (std::binary_search(paths.begin(), paths.end(), path.substr(0, at)))
        return bad_path(path, "lies in what is a file");
    }
  }
  if (manifest.digest.empty() && !all_sums) return ok_status();
  if (!all_sums || manifest.digest != digest_of(manifest.files)) {
    return Error{ErrorCode::kDataLoss, "the model's digest is not that of its files", "digest"};
  }
  return ok_status();
}

Result<std::vector<ManifestFile>> parse_files(const bj::value& array, std::string_view where) {
  if (!array.is_array() || array.get_array().size() > kMaxFiles) {
    return Error{ErrorCode::kInvalidArgument,
                 "files is a list of at most " + std::to_string(kMaxFiles), std::string(where)};
  }
  std::vector<ManifestFile> files;
  for (const bj::value& item : array.get_array()) {
    ManifestFile file;
    FLOTILLA_TRY(file.path, json::require_string(item, "path", where));
    FLOTILLA_TRY(
        const std::int64_t size,
        json::require_int(item, "size", 0, static_cast<std::int64_t>(kMaxModelBytes), where));
    file.size = static_cast<std::uint64_t>(size);
    FLOTILLA_TRY(const auto sum, json::get_string(item, "sha256", where));
    FLOTILLA_TRY(const auto url, json::get_string(item, "url", where));
    if (url && url->size() > kMaxUrl) return bad_path(file.path, "has a URL that is too long");
    file.sha256 = sum.value_or("");
    file.url = url.value_or("");
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), by_path);
  return files;
}

bj::array render_files(const std::vector<ManifestFile>& files) {
  bj::array out;
  for (const ManifestFile& file : files) {
    bj::object item{{"path", file.path}, {"size", file.size}, {"sha256", file.sha256}};
    if (!file.url.empty()) item["url"] = file.url;
    out.push_back(std::move(item));
  }
  return out;
}

Result<Manifest> parse_manifest(std::string_view text) {
  FLOTILLA_TRY(const bj::value body,
               json::parse(text, {.max_bytes = kMaxManifestBytes, .max_depth = 8}));
  Manifest out;
  FLOTILLA_TRY(out.model, json::require_string(body, "model"));
  FLOTILLA_TRY(const auto version, json::get_int(body, "version", 0, 1'000'000'000));
  out.version = version.value_or(0);
  FLOTILLA_TRY(const auto digest, json::get_string(body, "digest"));
  out.digest = digest.value_or("");
  const bj::value* files = json::find(body, "files");
  if (files == nullptr) return Error{ErrorCode::kInvalidArgument, "files is missing", "files"};
  FLOTILLA_TRY(out.files, parse_files(*files, "files"));
  FLOTILLA_TRY_STATUS(check(out));
  return out;
}

std::string render_manifest(const Manifest& manifest) {
  return bj::serialize(bj::object{{"object", "model_manifest"},
                                  {"model", manifest.model},
                                  {"version", manifest.version},
                                  {"digest", manifest.digest},
                                  {"bytes", manifest.bytes()},
                                  {"files", render_files(manifest.files)}});
}

}  // namespace flotilla::download
