#include "flotilla/tokenizer/utf8_assembler.h"

#include <cstddef>

namespace flotilla::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Part {
  std::size_t size;   // bytes that belong together, at least 1
  bool is_character;  // else a broken or open one
  bool is_open;       // the input ended inside
};

// What begins at the front of `in` (not empty).
Part next_part(std::string_view in) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(in[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= in.size()) return {i, false, true};
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (i == 1) {  // no overlong forms, surrogates or code points beyond the last
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {i, false, false};
  }
  return {length, true, false};
}

}  // namespace

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_ + std::string(bytes);
    bytes = joined;
    held_.clear();
  }
  while (!bytes.empty()) {
    const Part part = next_part(bytes);
    if (part.is_open) {
      held_ = bytes;
      return;
    }
    out += part.is_character ? bytes.substr(0, part.size) : kReplacement;
    bytes.remove_prefix(part.size);
  }
}

void Utf8Assembler::finish(std::string& out) {
  if (!held_.empty()) out += kReplacement;
  held_.clear();
}

}  // namespace flotilla::tokenizer
