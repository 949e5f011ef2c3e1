#include "flotilla/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/base/overloaded.h"
#include "flotilla/base/text.h"
#include "flotilla/json/json.h"
#include "flotilla/tokenizer/byte_level.h"
#include "flotilla/tokenizer/component.h"
#include "flotilla/tokenizer/unicode.h"
#include "flotilla/tokenizer/unicode_forms.h"

namespace flotilla::tokenizer {
namespace bj = boost::json;
namespace {

// All of the bytes in [begin, end) are trusted.
bool all_trusted(const std::string& trust, std::size_t begin, std::size_t end) {
  return std::find(trust.begin() + static_cast<std::ptrdiff_t>(begin),
                   trust.begin() + static_cast<std::ptrdiff_t>(end),
                   '\0') == trust.begin() + static_cast<std::ptrdiff_t>(end);
}

// Rebuilds the text piece by piece. `put(out, piece)` appends what becomes of a piece.
template <class PieceEnd, class Put>
void rewrite(NormalizedText& t, PieceEnd piece_end, Put put) {
  std::string out;
  std::string trust;
  out.reserve(t.text.size() + t.text.size() / 8);
  const std::string_view in = t.text;
  for (std::size_t i = 0; i < in.size();) {
    const std::size_t end = piece_end(in, i);
    const std::size_t before = out.size();
    put(out, in.substr(i, end - i));
    if (!t.trust.empty())
      trust.append(out.size() - before, all_trusted(t.trust, i, end) ? '\1' : '\0');
    if (i == 0 && out.empty()) t.lost_front = true;
    i = end;
  }
  t.text = std::move(out);
  t.trust = std::move(trust);
}

std::size_t char_end(std::string_view text, std::size_t begin) {
  return begin + decode_char(text.data() + begin).size;
}

void lowercase_char(std::string& out, std::string_view piece) {
  const char32_t c = decode_char(piece.data()).code_point;
  if (c == 0x130) {  // the only character whose lower case is two
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

void nmt_char(std::string& out, std::string_view piece) {
  const char32_t c = decode_char(piece.data()).code_point;
  const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  if (in(0x1, 0x8) || c == 0xB || in(0xE, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
  const bool blank = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                     in(0x200B, 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  out += blank ? std::string_view(" ") : piece;
}

}  // namespace

Status Normalizer::apply(const Replace& step, NormalizedText& t, MatchBudget& budget) {
  // The usual case, one character for another everywhere, needs no list of matches.
  std::vector<Match> matches;
  FLOTILLA_TRY_STATUS(step.pattern.find_all(t.text, matches, budget));
  if (matches.size() == 1 && !matches[0].is_match) return ok_status();
  std::string out;
  std::string trust;
  out.reserve(t.text.size() + t.text.size() / 2);
  for (const Match& m : matches) {
    if (!m.is_match) {
      out.append(t.text, m.begin, m.end - m.begin);
      if (!t.trust.empty()) trust.append(t.trust, m.begin, m.end - m.begin);
      continue;
    }
    out += step.content;
    if (!t.trust.empty())
      trust.append(step.content.size(), all_trusted(t.trust, m.begin, m.end) ? '\1' : '\0');
    // To the reference the new text lies where the last replaced character was.
    if (m.begin == 0 && m.end > 0 && (step.content.empty() || char_end(t.text, 0) < m.end))
      t.lost_front = true;
  }
  t.text = std::move(out);
  t.trust = std::move(trust);
  return ok_status();
}

void Normalizer::apply(const Prepend& step, NormalizedText& t) {
  if (t.text.empty()) return;
  if (!t.trust.empty()) t.trust.insert(0, step.text.size(), t.trust[0]);
  t.text.insert(0, step.text);
}

void Normalizer::apply(const Strip& step, NormalizedText& t) {
  std::size_t begin = 0;
  std::size_t end = t.text.size();
  while (step.left && begin < end && is_space(decode_char(t.text.data() + begin).code_point)) {
    begin = char_end(t.text, begin);
  }
  while (step.right && end > begin) {
    const std::size_t last = previous_char(t.text, end);
    if (!is_space(decode_char(t.text.data() + last).code_point)) break;
    end = last;
  }
  if (begin > 0) t.lost_front = true;
  t.text = t.text.substr(begin, end - begin);
  if (!t.trust.empty()) t.trust = t.trust.substr(begin, end - begin);
}

Status Normalizer::run(NormalizedText& t, MatchBudget& budget) const {
  for (const Step& any : steps_) {
    FLOTILLA_TRY_STATUS(std::visit(
        Overloaded{
            [&](const Replace& step) { return apply(step, t, budget); },
            [&](const Prepend& step) { return apply(step, t), ok_status(); },
            [&](const Strip& step) { return apply(step, t), ok_status(); },
            [&](const Compose& step) {
              const UnicodeForm form{step.compatible, step.compose};
              // Most texts are in the form already.
              bool stable = true;
              for (std::size_t i = 0; stable && i < t.text.size();) {
                if (static_cast<unsigned char>(t.text[i]) < 0x80 &&
                    (i + 1 == t.text.size() || static_cast<unsigned char>(t.text[i + 1]) < 0x80)) {
                  ++i;
                  continue;
                }
                const std::size_t end = form_piece_end(t.text, i, form);
                stable = is_stable_piece(std::string_view(t.text).substr(i, end - i), form);
                i = end;
              }
              if (stable) return ok_status();
              rewrite(
                  t,
                  [&](std::string_view text, std::size_t i) {
                    return form_piece_end(text, i, form);
                  },
                  [&](std::string& out, std::string_view piece) {
                    if (is_stable_piece(piece, form))
                      out += piece;
                    else
                      append_form(out, piece, form);
                  });
              return ok_status();
            },
            [&](const Lowercase&) { return rewrite(t, char_end, lowercase_char), ok_status(); },
            [&](const StripAccents&) {
              rewrite(t, char_end, [](std::string& out, std::string_view piece) {
                if (!is_normalization_mark(decode_char(piece.data()).code_point)) out += piece;
              });
              return ok_status();
            },
            [&](const ByteLevel&) { return rewrite(t, char_end, append_byte_level), ok_status(); },
            [&](const Nmt&) { return rewrite(t, char_end, nmt_char), ok_status(); },
        },
        any));
  }
  return ok_status();
}

Status Normalizer::parse_into(const bj::value& value, const std::string& where, int depth,
                              std::vector<Step>& steps) {
  if (depth > kMaxNesting)
    return Error{ErrorCode::kInvalidArgument, "tokenizer: " + where + " is nested too deep"};
  FLOTILLA_TRY(const std::string type, component_type(value, where));
  if (type == "Sequence") {
    FLOTILLA_TRY(const bj::array* parts, read_components(value, "normalizers", where));
    for (const bj::value& part : *parts)
      FLOTILLA_TRY_STATUS(parse_into(part, where + ".normalizers", depth + 1, steps));
  } else if (type == "Replace") {
    FLOTILLA_TRY(Matcher pattern, read_pattern(value, where));
    FLOTILLA_TRY(std::string content, json::require_string(value, "content", where));
    steps.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Prepend") {
    FLOTILLA_TRY(std::string text, json::require_string(value, "prepend", where));
    steps.emplace_back(Prepend{std::move(text)});
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps.emplace_back(Compose{.compatible = type.size() == 4, .compose = type.back() == 'C'});
  } else if (type == "Lowercase") {
    steps.emplace_back(Lowercase{});
  } else if (type == "Strip") {
    FLOTILLA_TRY(const bool left, json::require_bool(value, "strip_left", where));
    FLOTILLA_TRY(const bool right, json::require_bool(value, "strip_right", where));
    steps.emplace_back(Strip{left, right});
  } else if (type == "StripAccents") {
    steps.emplace_back(StripAccents{});
  } else if (type == "ByteLevel") {
    steps.emplace_back(ByteLevel{});
  } else if (type == "Nmt") {
    steps.emplace_back(Nmt{});
  } else {
    return unsupported_component(where, type);
  }
  return ok_status();
}

Result<Normalizer> Normalizer::parse(const bj::value* value) {
  Normalizer result;
  if (value) FLOTILLA_TRY_STATUS(parse_into(*value, "normalizer", 0, result.steps_));
  return result;
}

}  // namespace flotilla::tokenizer
