// The identity of a model: two nodes with equal digests serve the same thing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::checkpoint {

struct FileDigest {
  std::string path;  // relative to the model's folder
  std::uint64_t size = 0;
  std::string sha256;  // hex
  bool from_cache = false;
};

struct ModelDigest {
  std::string hex;  // of the lines "path NUL size NUL sha256 LF", sorted by path
  std::vector<FileDigest> files;
};

enum class DigestMode {
  kCached,     // files whose size and time are unchanged are not read again
  kVerify,     // every file is read; the cache is renewed
  kCacheOnly,  // nothing is read: kNotFound when a file is not in the cache
};

// Bytes hashed so far and in total. Called from the hashing threads, one call at a time.
using DigestProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Covers the weight files in use, config.json, generation_config.json, tokenizer files, chat
// template and picture settings; nothing else in the folder matters. Hashes with up to
// `num_threads` threads (0: one per processor).
Result<ModelDigest> model_digest(const std::string& folder, DigestMode mode = DigestMode::kCached,
                                 const DigestProgress& progress = {}, int num_threads = 0);

// In kVerify mode the previous sums of the cache are compared: files that changed although size and
// time say otherwise.
struct VerifyResult {
  ModelDigest digest;
  std::vector<std::string> damaged;  // paths whose cached sum, of equal size and time, differs
};
Result<VerifyResult> verify_model(const std::string& folder, const DigestProgress& progress = {},
                                  int num_threads = 0);

}  // namespace flotilla::checkpoint
