// One file on its way: what is on disk of it, and the sum so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/base/sha256.h"

namespace flotilla::download {

class PartFile {
 public:
  using Write = std::function<std::int64_t(int fd, const void* data, std::size_t size)>;
  // `path`: of the finished file. What an earlier try left is kept, up to `size` bytes, and read
  // once for the sum. An empty `write` is write(2).
  static Result<std::unique_ptr<PartFile>> open(const std::string& path, std::uint64_t size,
                                                Write write);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  // Of the server's file that the bytes are of; empty: it said none.
  const std::string& tag() const { return tag_; }

  Status restart(const std::string& tag);  // from nothing, of the file with this ETag
  // kResourceExhausted when the disk is full: what was written stays and counts.
  Status append(std::string_view piece);
  // Ends the sum: hex. Then either publish() or discard().
  std::string finish_sum();
  Status publish();  // on disk, under its name
  void discard();

 private:
  PartFile(std::string path, int fd, Write write);
  Status read_present(std::uint64_t size);

  const std::string path_, part_path_, tag_path_;
  const int fd_;
  const Write write_;
  std::uint64_t bytes_ = 0;
  std::string tag_;
  std::unique_ptr<Sha256> sum_ = std::make_unique<Sha256>();
};

// The last error of the system as ours; a full disk is kResourceExhausted.
Error disk_error(const std::string& what, int code);
// Writes a small file so that after a crash the old or the new content is there.
Status write_small_file(const std::string& path, std::string_view content);
Status sync_folder(const std::string& path);

}  // namespace flotilla::download
