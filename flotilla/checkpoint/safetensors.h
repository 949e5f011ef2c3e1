// The safetensors container: 8 bytes of header length, a JSON header, then the data of the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/tensor/dtype.h"
#include "flotilla/tensor/tensor.h"

namespace flotilla::checkpoint {

// Longest header that is read; the format's own limit.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct TensorEntry {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in order of their data
  std::map<std::string, std::string> metadata;
};

// Checks everything a reader relies on: lengths, types, shapes against sizes, and that the tensors
// fill the data exactly, without overlap or gap. `head` is the start of the file, at least
// min(file_size, 8 + header length) bytes. Errors (kDataLoss; kUnsupported for a rank above 5 or an
// unknown type) start with `file` and name the tensor.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head,
                                                   std::uint64_t file_size,
                                                   const std::string& file);

}  // namespace flotilla::checkpoint
