// The header parser on arbitrary files: an error, or tensors that lie inside the file and fill it
// exactly.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/base/check.h"
#include "flotilla/checkpoint/safetensors.h"

namespace {

void check(std::span<const std::byte> file) {
  const auto header = flotilla::checkpoint::parse_safetensors_header(file, file.size(), "fuzz");
  if (!header.ok()) {
    FLOTILLA_CHECK(!header.error().message.empty(), "an error says what is wrong");
    return;
  }
  std::uint64_t total = 0;
  for (const auto& tensor : header->tensors) {
    FLOTILLA_CHECK(tensor.offset <= file.size() && tensor.bytes <= file.size() - tensor.offset,
                   "tensor inside the file");
    FLOTILLA_CHECK(static_cast<std::uint64_t>(tensor.shape.num_elements()) *
                           flotilla::tensor::dtype_bytes(tensor.dtype) ==
                       tensor.bytes,
                   "shape fits the bytes");
    total += tensor.bytes;
  }
  FLOTILLA_CHECK(total + 8 <= file.size(), "no byte belongs to two tensors");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check(std::as_bytes(std::span(data, size)));
  // Most mutations break the length in front; with it repaired the JSON behind is reached.
  if (size >= 2) {
    const std::size_t header_bytes = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
    std::vector<std::uint8_t> file(8);
    for (std::size_t i = 0; i < 8; ++i)
      file[i] = static_cast<std::uint8_t>(std::uint64_t{header_bytes} >> (8 * i));
    file.insert(file.end(), data + 2, data + size);
    check(std::as_bytes(std::span(file)));
  }
  return 0;
}
