#include "flotilla/protocol/transcript.h"

#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/frame.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/link_error.h"

namespace flotilla::protocol {
namespace {

void append_part(std::string& out, std::string_view part) {
  for (unsigned i = 0; i < 4; ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint8_t>(part.size() >> (8 * i))));
  }
  out.append(part);
}

}  // namespace

Result<std::string> make_transcript(std::string_view hello_text, Offer offer) {
  offer.signature = {};
  FLOTILLA_TRY(const Encoded encoded, encode(HandshakeMessage(offer)));
  std::string transcript;
  append_part(transcript, hello_text);
  append_part(transcript, encoded.body);
  return transcript;
}

std::string labelled(std::string_view label, std::string_view transcript) {
  std::string out(label);
  out.append(transcript);
  return out;
}

Result<std::string> plain_frame(const HandshakeMessage& message) {
  FLOTILLA_TRY(const Encoded encoded, encode(message));
  FrameHeader header;
  header.version = kProtocolVersion;
  header.kind = encoded.kind;
  header.length = static_cast<std::uint32_t>(encoded.body.size());
  std::string frame;
  append_header(frame, header);
  frame.append(encoded.body);
  return frame;
}

Result<HandshakeMessage> open_plain_frame(std::string_view frame) {
  if (frame.size() > kMaxHandshakeBytes) {
    return link_error(LinkFault::kFrameOversized,
                      "a handshake message of " + std::to_string(frame.size()) + " bytes, limit " +
                          std::to_string(kMaxHandshakeBytes));
  }
  FLOTILLA_TRY(const FrameHeader header, parse_header(frame));
  return decode_handshake(header.kind, frame.substr(kHeaderBytes));
}

}  // namespace flotilla::protocol
