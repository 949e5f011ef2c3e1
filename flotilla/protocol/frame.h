// The header in front of every binary frame, 32 bytes, little-endian:
//   u8 version, u8 kind, u16 flags, u32 length, u128 job id, u32 attempt, u32 sequence
// `length` counts the bytes that follow. `sequence` is the low half of the frame's number in its
// direction. The header is readable by anyone on the wire but authenticated with the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"

namespace flotilla::protocol {

inline constexpr std::size_t kHeaderBytes = 32;
// Set on the last frame under a key: the next frame of this direction uses the next key.
inline constexpr std::uint16_t kFlagRekey = 1;

struct FrameHeader {
  std::uint8_t version = 0;
  std::uint8_t kind = 0;
  std::uint16_t flags = 0;
  std::uint32_t length = 0;
  JobId job;  // zero for frames that belong to no job
  std::uint32_t attempt = 0;
  std::uint32_t sequence = 0;
  bool operator==(const FrameHeader&) const = default;
};

void append_header(std::string& out, const FrameHeader& header);
// Checks version, and that exactly `length` bytes follow in `frame`. Faults: kFrameTruncated,
// kFrameOversized, kVersionMismatch.
Result<FrameHeader> parse_header(std::string_view frame);

struct Frame {
  FrameHeader header;
  std::string body;  // plain
};

}  // namespace flotilla::protocol
