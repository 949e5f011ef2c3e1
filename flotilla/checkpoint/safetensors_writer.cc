#include "flotilla/checkpoint/safetensors_writer.h"

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

namespace flotilla::checkpoint {
namespace bj = boost::json;

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::vector<TensorEntry> tensors) {
  SafetensorsWriter writer;
  writer.path_ = path;
  bj::object header;
  header["__metadata__"] = {{"format", "mlx"}};
  for (const TensorEntry& entry : tensors) {
    bj::array shape;
    for (std::size_t i = 0; i < entry.shape.rank(); ++i) shape.push_back(entry.shape[i]);
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(entry.shape.num_elements()) * tensor::dtype_bytes(entry.dtype);
    header[entry.name] = {
        {"dtype", tensor::dtype_name(entry.dtype)},
        {"shape", std::move(shape)},
        {"data_offsets", {writer.expected_bytes_, writer.expected_bytes_ + bytes}}};
    writer.expected_bytes_ += bytes;
  }
  std::string text = bj::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  writer.file_.reset(std::fopen(path.c_str(), "wb"));
  if (!writer.file_) {
    return Error{ErrorCode::kUnavailable, "cannot create " + path + ": " + std::strerror(errno)};
  }
  std::byte length[8];
  for (std::size_t i = 0; i < 8; ++i)
    length[i] = static_cast<std::byte>(std::uint64_t{text.size()} >> (8 * i));
  std::string head(reinterpret_cast<const char*>(length), sizeof length);
  head += text;
  if (std::fwrite(head.data(), 1, head.size(), writer.file_.get()) != head.size()) {
    return Error{ErrorCode::kUnavailable, "cannot write " + path + ": " + std::strerror(errno)};
  }
  return writer;
}

Status SafetensorsWriter::write(std::span<const std::byte> data) {
  if (data.empty()) return ok_status();
  written_bytes_ += data.size();
  if (std::fwrite(data.data(), 1, data.size(), file_.get()) != data.size()) {
    return Error{ErrorCode::kUnavailable, "cannot write " + path_ + ": " + std::strerror(errno)};
  }
  return ok_status();
}

Status SafetensorsWriter::close() {
  if (written_bytes_ != expected_bytes_) {
    return Error{ErrorCode::kInternal, path_ + ": " + std::to_string(written_bytes_) +
                                           " bytes of data written, " +
                                           std::to_string(expected_bytes_) + " declared"};
  }
  if (std::fclose(file_.release()) != 0) {
    return Error{ErrorCode::kUnavailable, "cannot write " + path_ + ": " + std::strerror(errno)};
  }
  return ok_status();
}

}  // namespace flotilla::checkpoint
