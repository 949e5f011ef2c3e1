// What a model consists of: its files with sizes and sums. The contract between whoever publishes a
// model and whoever fetches it; docs/api.md has the JSON.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::download {

inline constexpr std::size_t kMaxFiles = 4'096;
inline constexpr std::uint64_t kMaxModelBytes = std::uint64_t{16} << 40;

struct ManifestFile {
  std::string path;        // relative to the model's folder, '/' between the parts
  std::uint64_t size = 0;  // bytes
  std::string sha256;      // hex, 64 characters; of a source that does not say: empty
  std::string url = {};    // where it is, absolute or from the server's root; empty: nowhere yet
};

struct Manifest {
  std::string model;
  std::int64_t version = 0;         // 0: the source has none
  std::string digest;               // the model's; empty while a file's sum is unknown
  std::vector<ManifestFile> files;  // by path

  std::uint64_t bytes() const;
};

// A name that is a plain folder below the models' folder: letters, digits, '.', '_', '-' and '+',
// not hidden, at most 128.
Status check_model_name(std::string_view name);
// A path that stays inside its folder on every system, and that no part of ours uses: no empty,
// dotted or hidden segments, no backslash, colon or control character, UTF-8, not *.part.
Status check_file_path(std::string_view path);

// The digest that nodes compute of a folder with just these files.
std::string digest_of(std::vector<ManifestFile> files);
// Names, limits, sums, no path twice or inside another one; and that the digest is theirs.
Status check(const Manifest& manifest);

Result<std::vector<ManifestFile>> parse_files(const boost::json::value& array,
                                              std::string_view where);
boost::json::array render_files(const std::vector<ManifestFile>& files);
// Of untrusted text; what it gives has passed check().
Result<Manifest> parse_manifest(std::string_view text);
std::string render_manifest(const Manifest& manifest);

}  // namespace flotilla::download
