#include "flotilla/checkpoint/weight_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace bj = boost::json;
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::size_t kMaxNamed = 8;  // of many missing files

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name.ends_with(kSuffix) &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Status check_present(const std::string& folder, const std::vector<std::string>& names) {
  std::string missing;
  std::size_t num_missing = 0;
  for (const std::string& name : names) {
    if (exists(folder + "/" + name)) continue;
    if (++num_missing <= kMaxNamed) missing += (missing.empty() ? "" : ", ") + name;
  }
  if (num_missing == 0) return ok_status();
  if (num_missing > kMaxNamed)
    missing += " and " + std::to_string(num_missing - kMaxNamed) + " more";
  return Error{ErrorCode::kDataLoss, folder + ": incomplete, " + std::to_string(num_missing) +
                                         " of " + std::to_string(names.size()) +
                                         " weight files missing: " + missing};
}

Result<WeightFiles> read_index(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kIndexName);
  FLOTILLA_TRY(const bj::value index, json::parse_file(path));
  const bj::value* map = json::find(index, "weight_map");
  if (map == nullptr || !map->is_object() || map->get_object().empty()) {
    return Error{ErrorCode::kDataLoss, path + ": 'weight_map' is missing, empty or no object"};
  }
  WeightFiles files;
  files.has_index = true;
  std::set<std::string> names;
  for (const auto& member : map->get_object()) {
    const std::string tensor(member.key());
    if (!member.value().is_string()) {
      return Error{ErrorCode::kDataLoss, path + ": the file of tensor '" + tensor + "' is no text"};
    }
    const std::string file(member.value().get_string().c_str(), member.value().get_string().size());
    if (!is_plain_name(file)) {
      return Error{ErrorCode::kDataLoss,
                   path + ": tensor '" + tensor +
                       "' lies in a file whose name is not a plain '*.safetensors' in this folder"};
    }
    files.index.emplace(tensor, file);
    names.insert(file);
  }
  files.names.assign(names.begin(), names.end());
  FLOTILLA_TRY_STATUS(check_present(folder, files.names));
  return files;
}

// The y of model-0000x-of-0000y.safetensors.
std::optional<unsigned> shard_count(std::string_view name) {
  constexpr std::string_view kPrefix = "model-";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  if (name.size() != 14 || name.substr(5, 4) != "-of-") return std::nullopt;
  unsigned number = 0;
  unsigned count = 0;
  const auto read = [](std::string_view digits, unsigned& out) {
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return ec == std::errc() && end == digits.data() + digits.size();
  };
  if (!read(name.substr(0, 5), number) || !read(name.substr(9), count)) return std::nullopt;
  if (number == 0 || number > count) return std::nullopt;
  return count;
}

std::string shard_name(unsigned number, unsigned count) {
  char text[64];
  std::snprintf(text, sizeof text, "model-%05u-of-%05u.safetensors", number, count);
  return text;
}

}  // namespace

Result<WeightFiles> find_weight_files(const std::string& folder) {
  if (exists(folder + "/" + std::string(kIndexName))) return read_index(folder);
  WeightFiles files;
  if (exists(folder + "/model.safetensors")) {
    files.names = {"model.safetensors"};
    return files;
  }
  std::error_code ec;
  std::set<std::string> found;
  std::set<unsigned> counts;
  for (std::filesystem::directory_iterator it(folder, ec), end; !ec && it != end;
       it.increment(ec)) {
    std::string name = it->path().filename().string();
    if (!is_plain_name(name)) continue;
    if (const std::optional<unsigned> count = shard_count(name)) counts.insert(*count);
    found.insert(std::move(name));
  }
  if (ec)
    return Error{ErrorCode::kNotFound, "cannot read the folder " + folder + ": " + ec.message()};
  if (counts.size() > 1) {
    return Error{ErrorCode::kDataLoss, folder + ": weight files of two different sets, and no " +
                                           std::string(kIndexName)};
  }
  if (counts.size() == 1) {
    for (unsigned i = 1; i <= *counts.begin(); ++i)
      files.names.push_back(shard_name(i, *counts.begin()));
    FLOTILLA_TRY_STATUS(check_present(folder, files.names));
    return files;
  }
  if (found.empty()) return Error{ErrorCode::kNotFound, folder + ": no *.safetensors weights"};
  if (found.size() > 1) {
    return Error{ErrorCode::kDataLoss,
                 folder + ": several *.safetensors files, and no " + std::string(kIndexName)};
  }
  files.names.assign(found.begin(), found.end());
  return files;
}

}  // namespace flotilla::checkpoint
