#include "flotilla/tokenizer/scanners.h"

#include "flotilla/tokenizer/unicode.h"

namespace flotilla::tokenizer {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

struct Cursor {
  std::string_view text;
  const CharTable& table = CharTable::instance();

  bool at_end(std::size_t p) const { return p >= text.size(); }
  char byte(std::size_t p) const { return p < text.size() ? text[p] : '\0'; }
  std::size_t next(std::size_t p) const {
    const auto lead = static_cast<unsigned char>(text[p]);
    return p + (lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4);
  }
  CharClass cls(std::size_t p) const {
    const auto lead = static_cast<unsigned char>(text[p]);
    return lead < 0x80 ? table[lead] : table[decode_char(text.data() + p).code_point];
  }
  // End of the longest run from p of characters that have one of `any`, at most `max` of them.
  std::size_t run(std::size_t p, CharClass any, std::size_t max = kNone) const {
    for (; max > 0 && !at_end(p) && (cls(p) & any) != 0; --max) p = next(p);
    return p;
  }
  std::size_t run_without(std::size_t p, CharClass none) const {
    while (!at_end(p) && (cls(p) & none) == 0) p = next(p);
    return p;
  }
  bool is_newline(std::size_t p) const {
    return byte(p) == '\n' || (byte(p) == '\r' && !at_end(p));
  }
};

// 's 't 're 've 'm 'll 'd; the end, or kNone. Without case also the long s, which folds to s.
std::size_t contraction(const Cursor& in, std::size_t p, bool any_case) {
  if (in.byte(p) != '\'') return kNone;
  const auto letter = [&](std::size_t at) {
    const char c = in.byte(at);
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char a = letter(p + 1);
  const char b = letter(p + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
  if ((a == 'r' || a == 'v') && b == 'e') return p + 3;
  if (a == 'l' && b == 'l') return p + 3;
  if (any_case && in.text.substr(p + 1).starts_with("\xC5\xBF")) return p + 3;
  return kNone;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ ; without `newlines` only the last two. kNone when p is at no white
// space.
std::size_t white_space(const Cursor& in, std::size_t p, bool newlines) {
  std::size_t end = p;
  std::size_t last = p;             // begin of the last character of the run
  std::size_t newline_end = kNone;  // behind the last newline of the run
  while (!in.at_end(end) && (in.cls(end) & kSpace) != 0) {
    last = end;
    end = in.next(end);
    if (newlines && in.is_newline(last)) newline_end = end;
  }
  if (end == p) return kNone;
  if (newline_end != kNone) return newline_end;
  // The last blank stays with the word that follows.
  return in.at_end(end) || last == p ? end : last;
}

// [^\r\n\p{L}\p{N}]?X+ where X has one of `letters`.
std::size_t prefixed_word(const Cursor& in, std::size_t p, CharClass letters) {
  const CharClass cls = in.cls(p);
  if ((cls & (kLetter | kNumber)) == 0 && !in.is_newline(p)) {
    const std::size_t begin = in.next(p);
    const std::size_t end = in.run(begin, letters);
    if (end > begin) return end;
  }
  const std::size_t end = in.run(p, letters);
  return end > p ? end : kNone;
}

// ` ?[^none]+` followed by any of `tail`.
std::size_t symbols(const Cursor& in, std::size_t p, CharClass none, std::string_view tail) {
  const std::size_t begin = in.byte(p) == ' ' ? p + 1 : p;
  std::size_t end = in.run_without(begin, none);
  if (end == begin) return kNone;
  while (!in.at_end(end) && tail.find(in.byte(end)) != kNone) ++end;
  return end;
}

std::size_t scan_gpt2(std::string_view text, std::size_t* begin) {
  const Cursor in{text};
  const std::size_t p = *begin;
  if (const std::size_t end = contraction(in, p, false); end != kNone) return end;
  const std::size_t word = in.byte(p) == ' ' ? p + 1 : p;
  if (!in.at_end(word)) {
    const CharClass cls = in.cls(word);
    if ((cls & kLetter) != 0) return in.run(word, kLetter);
    if ((cls & kNumber) != 0) return in.run(word, kNumber);
    if ((cls & kSpace) == 0) return in.run_without(word, kSpace | kLetter | kNumber);
  }
  return white_space(in, p, false);
}

// The family of cl100k: letters, numbers in groups, symbols with line ends, white space.
template <CharClass kWordClass, CharClass kNoSymbol, std::size_t kDigits>
std::size_t scan_cl100k(std::string_view text, std::size_t* begin) {
  const Cursor in{text};
  const std::size_t p = *begin;
  if (const std::size_t end = contraction(in, p, true); end != kNone) return end;
  if (const std::size_t end = prefixed_word(in, p, kWordClass); end != kNone) return end;
  if (const std::size_t end = in.run(p, kNumber, kDigits); end != p) return end;
  if (const std::size_t end = symbols(in, p, kNoSymbol, "\r\n"); end != kNone) return end;
  return white_space(in, p, true);
}

// X*Y+ and X+Y* of o200k, where X is upper case or neutral, Y lower case or neutral.
constexpr CharClass kHead = kUpper | kOtherLetter | kMark;
constexpr CharClass kTail = kLower | kOtherLetter | kMark;

std::size_t head_tail(const Cursor& in, std::size_t p, bool needs_tail) {
  std::size_t tail = kNone;  // the last character of the head that may also be a tail
  std::size_t head_end = p;
  while (!in.at_end(head_end)) {
    const CharClass cls = in.cls(head_end);
    if ((cls & kHead) == 0) break;
    if ((cls & kTail) != 0) tail = head_end;
    head_end = in.next(head_end);
  }
  if (!needs_tail) return head_end == p ? kNone : in.run(head_end, kTail);
  const std::size_t end = in.run(head_end, kTail);
  if (end > head_end) return end;
  return tail == kNone ? kNone : in.next(tail);
}

std::size_t scan_o200k(std::string_view text, std::size_t* begin) {
  const Cursor in{text};
  const std::size_t p = *begin;
  const bool may_prefix = (in.cls(p) & (kLetter | kNumber)) == 0 && !in.is_newline(p);
  for (const bool needs_tail : {true, false}) {
    std::size_t end = may_prefix ? head_tail(in, in.next(p), needs_tail) : kNone;
    if (end == kNone) end = head_tail(in, p, needs_tail);
    if (end == kNone) continue;
    const std::size_t suffix = contraction(in, end, true);
    return suffix == kNone ? end : suffix;
  }
  if (const std::size_t end = in.run(p, kNumber, 3); end != p) return end;
  if (const std::size_t end = symbols(in, p, kSpace | kLetter | kNumber, "\r\n/"); end != kNone)
    return end;
  return white_space(in, p, true);
}

std::size_t scan_numbers(std::string_view text, std::size_t* begin) {
  const Cursor in{text};
  *begin = in.run_without(*begin, kNumber);
  if (in.at_end(*begin)) {
    *begin = kNone;
    return kNone;
  }
  return in.run(*begin, kNumber, 3);
}

bool is_deepseek_cjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

std::size_t scan_deepseek_cjk(std::string_view text, std::size_t* begin) {
  std::size_t p = *begin;
  while (p < text.size()) {
    if (static_cast<unsigned char>(text[p]) < 0xE3) {  // below U+3000
      ++p;
      continue;
    }
    const auto [c, size] = decode_char(text.data() + p);
    if (is_deepseek_cjk(c)) break;
    p += size;
  }
  if (p >= text.size()) {
    *begin = kNone;
    return kNone;
  }
  *begin = p;
  while (p < text.size()) {
    const auto [c, size] = decode_char(text.data() + p);
    if (!is_deepseek_cjk(c)) break;
    p += size;
  }
  return p;
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The end of a match of DeepSeek's third pattern at p, or kNone.
std::size_t deepseek_word(const Cursor& in, std::size_t p) {
  const CharClass cls = in.cls(p);
  const auto lead = static_cast<unsigned char>(in.text[p]);
  if (lead < 0x80 && (cls & (kPunctuation | kSymbol)) != 0 && is_ascii_letter(in.byte(p + 1))) {
    std::size_t end = p + 1;
    while (is_ascii_letter(in.byte(end))) ++end;
    return end;
  }
  constexpr CharClass kWordClass = kLetter | kMark;
  if ((cls & (kLetter | kPunctuation | kSymbol)) == 0 && !in.is_newline(p)) {
    const std::size_t begin = in.next(p);
    const std::size_t end = in.run(begin, kWordClass);
    if (end > begin) return end;
  }
  if ((cls & kWordClass) != 0) return in.run(p, kWordClass);
  const std::size_t symbol = in.byte(p) == ' ' ? p + 1 : p;
  std::size_t end = in.run(symbol, kPunctuation | kSymbol);
  if (end > symbol) {
    while (in.is_newline(end)) ++end;
    return end;
  }
  return white_space(in, p, true);
}

std::size_t scan_deepseek_words(std::string_view text, std::size_t* begin) {
  const Cursor in{text};
  for (std::size_t p = *begin; !in.at_end(p); p = in.next(p)) {
    const std::size_t end = deepseek_word(in, p);
    if (end == kNone) continue;
    *begin = p;
    return end;
  }
  *begin = kNone;
  return kNone;
}

struct Known {
  std::string_view pattern;
  Scanner scanner;
};

constexpr CharClass kLetterOrMark = kLetter | kMark;
constexpr CharClass kSpaceLetterNumber = kSpace | kLetter | kNumber;

constexpr Known kKnown[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", scan_gpt2},
    // Llama 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scan_cl100k<kLetter, kSpaceLetterNumber, 3>},
    // Qwen 2 and 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scan_cl100k<kLetter, kSpaceLetterNumber, 1>},
    // Qwen 3.5
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scan_cl100k<kLetterOrMark, kSpaceLetterNumber | kMark, 1>},
    // o200k
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scan_o200k},
    // DeepSeek V3 and V4, three steps
    {R"(\p{N}{1,3})", scan_numbers},
    {"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", scan_deepseek_cjk},
    {"[!\"#$%&'()*+,\\-./"
     ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
     " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     scan_deepseek_words},
};

}  // namespace

const std::string_view kGpt2Pattern = kKnown[0].pattern;

Scanner find_scanner(std::string_view pattern) {
  for (const Known& known : kKnown) {
    if (known.pattern == pattern) return known.scanner;
  }
  return nullptr;
}

std::vector<std::string_view> scanner_patterns() {
  std::vector<std::string_view> result;
  for (const Known& known : kKnown) result.push_back(known.pattern);
  return result;
}

}  // namespace flotilla::tokenizer
