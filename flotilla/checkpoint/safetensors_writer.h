// Writes a safetensors file: all tensors are declared first, then their data follow in order, so
// that files larger than memory can be written.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/checkpoint/safetensors.h"

namespace flotilla::checkpoint {

class SafetensorsWriter {
 public:
  // Offsets and sizes of `tensors` are computed here. Creates the file and writes the header,
  // padded to 8 bytes.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          std::vector<TensorEntry> tensors);
  // The next bytes of data, of any length; tensors may be cut anywhere.
  Status write(std::span<const std::byte> data);
  // kInternal when the data declared and written differ in length.
  Status close();

 private:
  struct FileCloser {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, FileCloser> file_;
  std::uint64_t expected_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
};

}  // namespace flotilla::checkpoint
