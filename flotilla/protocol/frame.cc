#include "flotilla/protocol/frame.h"

#include <cstring>

#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::protocol {
namespace {

template <class T>
void append_le(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint8_t>(value >> (8 * i))));
  }
}

template <class T>
T read_le(const char* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(
        value | static_cast<T>(static_cast<T>(static_cast<std::uint8_t>(at[i])) << (8 * i)));
  }
  return value;
}

}  // namespace

void append_header(std::string& out, const FrameHeader& header) {
  append_le(out, header.version);
  append_le(out, header.kind);
  append_le(out, header.flags);
  append_le(out, header.length);
  out.append(reinterpret_cast<const char*>(header.job.bytes.data()), header.job.bytes.size());
  append_le(out, header.attempt);
  append_le(out, header.sequence);
}

Result<FrameHeader> parse_header(std::string_view frame) {
  if (frame.size() < kHeaderBytes) {
    return link_error(LinkFault::kFrameTruncated, "a frame of " + std::to_string(frame.size()) +
                                                      " bytes is shorter than its header of 32");
  }
  const char* at = frame.data();
  FrameHeader header;
  header.version = read_le<std::uint8_t>(at);
  header.kind = read_le<std::uint8_t>(at + 1);
  header.flags = read_le<std::uint16_t>(at + 2);
  header.length = read_le<std::uint32_t>(at + 4);
  std::memcpy(header.job.bytes.data(), at + 8, 16);
  header.attempt = read_le<std::uint32_t>(at + 24);
  header.sequence = read_le<std::uint32_t>(at + 28);
  if (header.version < kOldestProtocolVersion || header.version > kProtocolVersion) {
    return link_error(LinkFault::kVersionMismatch,
                      "frame of version " + std::to_string(header.version) + ", this side speaks " +
                          std::to_string(kOldestProtocolVersion) + " to " +
                          std::to_string(kProtocolVersion));
  }
  const std::size_t rest = frame.size() - kHeaderBytes;
  if (header.length > rest) {
    return link_error(LinkFault::kFrameTruncated, "the header announces " +
                                                      std::to_string(header.length) + " bytes, " +
                                                      std::to_string(rest) + " follow");
  }
  if (header.length < rest) {
    return link_error(LinkFault::kFrameOversized, "the header announces " +
                                                      std::to_string(header.length) + " bytes, " +
                                                      std::to_string(rest) + " follow");
  }
  return header;
}

}  // namespace flotilla::protocol
