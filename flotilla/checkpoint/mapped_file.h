// A file mapped read-only, as a Buffer that tensors view.
#pragma once

#include <memory>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/tensor/tensor.h"

namespace flotilla::checkpoint {

// Shared with the page cache: loading copies nothing, and several processes share the memory. The
// size is fixed at open; a file that another program truncates later raises SIGBUS on access, as
// with every mapping, so checkpoints are replaced by rename and never written in place.
class MappedFile final : public tensor::Buffer {
 public:
  // kNotFound, kInvalidArgument (no regular file) or kDataLoss. An empty file gives a buffer of
  // size 0.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile() override;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Asks the kernel to start reading the file in the background.
  void prefetch() const;

 private:
  MappedFile(std::byte* data, std::size_t size) : Buffer(data, size) {}
};

}  // namespace flotilla::checkpoint
