// SHA-256 sums of large files, remembered between runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "flotilla/base/result.h"

namespace flotilla::checkpoint {

// What must be unchanged for a remembered sum to count.
struct FileStamp {
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileStamp&) const = default;
};
// kNotFound when `path` (links followed) is no regular file.
Result<FileStamp> stamp_file(const std::string& path);

// One JSON file, shared by all processes of a user: updates merge under a lock and replace the file
// at once. A damaged or missing cache is an empty one. Not thread-safe.
class DigestCache {
 public:
  // $FLOTILLA_CACHE_DIR, else $XDG_CACHE_HOME/flotilla, else ~/.cache/flotilla; "" when none is
  // known.
  static std::string default_folder();

  // Reads <folder>/digests.json. An empty `folder` makes a cache that forgets.
  explicit DigestCache(std::string folder = default_folder());

  // Hex SHA-256 of the file, if it was stored for this stamp. `path` should be canonical.
  std::optional<std::string> find(const std::string& path, const FileStamp& stamp) const;
  void put(const std::string& path, const FileStamp& stamp, std::string sha256);
  // Writes what was put. An error means a slower next start, no more.
  Status save();

 private:
  struct Entry {
    FileStamp stamp;
    std::string sha256;
  };
  std::map<std::string, Entry> read() const;

  std::string folder_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, Entry> added_;
};

}  // namespace flotilla::checkpoint
