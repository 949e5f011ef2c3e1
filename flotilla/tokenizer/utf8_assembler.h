// Joins bytes to characters. Bytes that can no longer become one are replaced by U+FFFD, one for
// each maximal part of a character, as the Unicode standard recommends; bytes that still can are
// held back.
#pragma once

#include <string>
#include <string_view>

namespace flotilla::tokenizer {

class Utf8Assembler {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);  // what is held back becomes U+FFFD

 private:
  std::string held_;  // the begin of a character, at most 3 bytes
};

}  // namespace flotilla::tokenizer
