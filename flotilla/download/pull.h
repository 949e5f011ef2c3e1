// Fetches a model into the folder of models: several files at a time, each resumable, none used
// before its sum is right, the whole visible at once at the end.
//
// While it runs, files lie in MODELS/.NAME.pull: finished ones under their names, others as
// NAME.part with the ETag in NAME.part.tag. A pull that was stopped, killed or ran out of disk goes
// on from there, also when the manifest has changed: files that are the same in both stay.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flotilla/download/fetch.h"
#include "flotilla/download/manifest.h"

namespace flotilla::download {

// Where a model comes from. Files of the manifest have absolute URLs.
struct Source {
  Manifest manifest;
  // Secrets by origin_of() the server that may see them.
  std::vector<std::pair<std::string, std::string>> tokens = {};

  std::string token_for(std::string_view url) const;
};

struct PullOptions {
  std::string models_dir;
  bool replace = false;  // an older folder of the name goes at the end
  int parallel = 4;
  FetchOptions fetch = {};
  std::uint64_t reserve_bytes = std::uint64_t{64} << 20;  // of the disk, stays free
  int max_attempts = 8;                    // of a file without a byte of progress in between
  std::chrono::milliseconds backoff{500};  // doubles, up to 30 s
  // Bytes so far and in all; from any thread, one call at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
  std::function<bool()> stop = {};  // asked often, from any thread
  // For tests of a full disk: as write(2), and what statvfs says.
  std::function<std::int64_t(int fd, const void* data, std::size_t size)> write = {};
  std::function<std::optional<std::uint64_t>(const std::string& folder)> free_bytes = {};
};

struct Pulled {
  std::string folder;
  Manifest manifest;  // with all sums and the digest
  std::uint64_t fetched_bytes = 0;
};

// kAlreadyExists: another pull of the model runs, or its folder is there and `replace` is not set.
// kResourceExhausted: the disk, with numbers. kDataLoss: a file whose sum stayed wrong. kCancelled.
// After each of them what was fetched is kept for the next try.
Result<Pulled> pull(const Source& source, const PullOptions& options);

}  // namespace flotilla::download
