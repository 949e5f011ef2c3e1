// Unicode normalisation forms in linear time, piece by piece.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flotilla::tokenizer {

struct UnicodeForm {
  bool compatible = false;  // NFKC, NFKD
  bool compose = false;     // NFC, NFKC
};

// A mark (category M) to the reference's normalisation, whose data is older than ours.
bool is_normalization_mark(char32_t c);

// End of the shortest piece of `text` from `begin` (< size) that can be normalised on its own: the
// form of a text is the forms of its pieces joined.
std::size_t form_piece_end(std::string_view text, std::size_t begin, UnicodeForm form);
// True when the piece is in the form already.
bool is_stable_piece(std::string_view piece, UnicodeForm form);
void append_form(std::string& out, std::string_view piece, UnicodeForm form);

}  // namespace flotilla::tokenizer
