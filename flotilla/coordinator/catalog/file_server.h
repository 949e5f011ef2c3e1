// Files as answers: read piece by piece as clients take them, so that any number of large downloads
// costs little memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/serving/extra_route.h"

namespace flotilla::coordinator {

// Bytes [first, last] of a file; `last` inclusive, as HTTP counts.
struct ByteRange {
  std::uint64_t first = 0, last = 0;
  bool operator==(const ByteRange&) const = default;
};
// What a Range header asks of a file of `size` bytes: a range; nullopt: the whole file, for no
// header, several ranges, other units and what cannot be read; kInvalidArgument: beyond its end.
Result<std::optional<ByteRange>> parse_range(std::optional<std::string_view> header,
                                             std::uint64_t size);

struct ServedFile {
  std::string path;  // on disk
  std::uint64_t size = 0;
  std::string etag;  // with quotes
};

// Thread-safe. Connections may outlive it: what they still wait for is broken off.
class FileServer {
 public:
  static constexpr std::size_t kMaxTransfers = 512;
  explicit FileServer(int num_threads = 2);
  ~FileServer();
  // Answers a GET or HEAD: whole, or the range asked for. A file that is not as large as it should
  // be is kDataLoss.
  void serve(const ServedFile& file, const std::shared_ptr<net::HttpExchange>& exchange,
             const serving::ExtraRoute::Reply& reply, const serving::ExtraRoute::Reply& begin);
  std::size_t num_transfers() const;

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace flotilla::coordinator
