#include "flotilla/chat/jinja_text_functions.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "flotilla/chat/unicode_text.h"

namespace flotilla::chat {

namespace {

bool is_stripped(std::string_view text, std::size_t at, std::size_t size,
                 const std::string_view* chars) {
  std::size_t end = at;
  const char32_t c = next_char(text, end);
  if (end - at != size) return false;
  return chars ? chars->find(text.substr(at, size)) != std::string_view::npos : is_space_char(c);
}

std::size_t last_char_start(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80)
    --start;
  return start;
}

}  // namespace

MarkedText strip_text(Runtime& runtime, const MarkedText& text, Side side,
                      const std::string_view* chars) {
  const std::string_view view = text.view();
  std::size_t start = 0;
  std::size_t end = view.size();
  if (side != Side::kRight) {
    while (start < end) {
      std::size_t next = start;
      next_char(view, next);
      if (!is_stripped(view, start, next - start, chars)) break;
      start = next;
    }
  }
  if (side != Side::kLeft) {
    while (end > start) {
      std::size_t last = last_char_start(view, end);
      std::size_t next = last;
      next_char(view, next);
      if (next != end) last = end - 1;
      if (!is_stripped(view, last, end - last, chars)) break;
      end = last;
    }
  }
  runtime.charge_bytes(view.size() - (end - start));
  return text.substr(start, end - start);
}

MarkedText replace_text(Runtime& runtime, const MarkedText& text, const MarkedText& from,
                        const MarkedText& to, std::int64_t count) {
  const std::string_view view = text.view();
  const std::string_view needle = from.view();
  runtime.charge_bytes(view.size());
  TextBuilder out;
  std::size_t at = 0;
  const auto put = [&](const MarkedText& piece) {
    if (out.size() + piece.size() > runtime.max_text())
      runtime.check_text(out.size() + piece.size());
    runtime.charge_bytes(piece.size());
    out.append(piece);
  };
  while (count != 0) {
    const std::size_t found = needle.empty() ? at : view.find(needle, at);
    if (found == std::string_view::npos) break;
    put(text.substr(at, found - at));
    put(to);
    at = found + needle.size();
    --count;
    if (!needle.empty()) continue;
    // An empty needle matches between all characters.
    if (at >= view.size()) return out.take();
    std::size_t next = at;
    next_char(view, next);
    put(text.substr(at, next - at));
    at = next;
  }
  if (at == 0) return text;
  put(text.substr(at, view.size()));
  return out.take();
}

namespace {

Value piece_of(Runtime& runtime, const MarkedText& text, std::size_t start, std::size_t end) {
  runtime.charge(2);
  return Value::text(text.substr(start, end - start));
}

std::vector<Value> split_space(Runtime& runtime, const MarkedText& text, std::int64_t count,
                               bool from_right) {
  const std::string_view view = text.view();
  std::vector<std::pair<std::size_t, std::size_t>> words;
  for (std::size_t at = 0; at < view.size();) {
    std::size_t next = at;
    if (is_space_char(next_char(view, next))) {
      at = next;
      continue;
    }
    const std::size_t start = at;
    while (at < view.size() && space_at(view, at) == 0) next_char(view, at);
    words.emplace_back(start, at);
  }
  std::vector<Value> pieces;
  const std::size_t limit =
      count < 0 ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(count);
  if (words.size() > limit) {
    if (from_right) {
      const std::size_t joined = words.size() - limit;
      words[joined - 1].first = 0;
      words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(joined - 1));
    } else {
      words[limit].second = view.size();
      words.resize(limit + 1);
    }
  }
  for (const auto& [start, end] : words) pieces.push_back(piece_of(runtime, text, start, end));
  return pieces;
}

}  // namespace

Value split_text(Runtime& runtime, const MarkedText& text, const std::string_view* separator,
                 std::int64_t count, bool from_right) {
  const std::string_view view = text.view();
  runtime.charge_bytes(view.size());
  if (!separator) return Value::list(split_space(runtime, text, count, from_right));
  if (separator->empty()) runtime.fail("split: the separator is empty");
  std::vector<Value> pieces;
  if (from_right) {
    std::size_t end = view.size();
    while (count != 0) {
      const std::size_t found = end < separator->size()
                                    ? std::string_view::npos
                                    : view.rfind(*separator, end - separator->size());
      if (found == std::string_view::npos) break;
      pieces.push_back(piece_of(runtime, text, found + separator->size(), end));
      end = found;
      --count;
    }
    pieces.push_back(piece_of(runtime, text, 0, end));
    std::reverse(pieces.begin(), pieces.end());
    return Value::list(std::move(pieces));
  }
  std::size_t at = 0;
  while (count != 0) {
    const std::size_t found = view.find(*separator, at);
    if (found == std::string_view::npos) break;
    pieces.push_back(piece_of(runtime, text, at, found));
    at = found + separator->size();
    --count;
  }
  pieces.push_back(piece_of(runtime, text, at, view.size()));
  return Value::list(std::move(pieces));
}

MarkedText join_texts(Runtime& runtime, const std::vector<Value>& items,
                      const MarkedText& separator) {
  TextBuilder out;
  bool first = true;
  for (const Value& item : items) {
    const MarkedText text = runtime.to_text(item);
    if (out.size() + text.size() + separator.size() > runtime.max_text())
      runtime.check_text(runtime.max_text() + 1);
    runtime.charge_bytes(text.size() + separator.size());
    if (!first) out.append(separator);
    first = false;
    out.append(text);
  }
  return out.take();
}

MarkedText change_case(Runtime& runtime, const MarkedText& text, Casing casing) {
  runtime.charge_bytes(text.size() * 4);
  TextBuilder out;
  bool at_start = true;
  text.for_each_run([&](std::string_view run, bool trusted) {
    std::string changed;
    changed.reserve(run.size());
    for (std::size_t at = 0; at < run.size();) {
      const char32_t c = next_char(run, at);
      switch (casing) {
        case Casing::kUpper:
          append_upper(changed, c);
          break;
        case Casing::kLower:
          append_lower(changed, c);
          break;
        case Casing::kSwap:
          is_upper(c) ? append_lower(changed, c) : append_upper(changed, c);
          break;
        case Casing::kCapitalize:
          at_start ? append_title(changed, c) : append_lower(changed, c);
          at_start = false;
          break;
        case Casing::kTitleWords:  // the filter: words start after white space or -({[<
          at_start ? append_upper(changed, c) : append_lower(changed, c);
          at_start = is_space_char(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
          break;
        case Casing::kPythonTitle:  // the method: words are runs of letters
          at_start ? append_title(changed, c) : append_lower(changed, c);
          at_start = !is_letter(c);
          break;
      }
    }
    out.append(changed, trusted);
  });
  return out.take();
}

MarkedText pad_text(Runtime& runtime, const MarkedText& text, std::int64_t width,
                    std::string_view fill, Side text_side) {
  const auto count = static_cast<std::int64_t>(count_chars(text.view()));
  if (width <= count) return text;
  const auto missing = static_cast<std::size_t>(width - count);
  if (missing > runtime.max_text()) runtime.check_text(missing);
  runtime.check_text(text.size() + missing * fill.size());
  // Python puts the odd blank of center() on the left only when the width is odd.
  const std::size_t left = text_side == Side::kLeft ? 0
                           : text_side == Side::kRight
                               ? missing
                               : missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  TextBuilder out;
  for (std::size_t i = 0; i < left; ++i) out.append(fill, true);
  out.append(text);
  for (std::size_t i = left; i < missing; ++i) out.append(fill, true);
  return out.take();
}

std::vector<MarkedText> split_lines(Runtime& runtime, const MarkedText& text, bool keep_ends) {
  const std::string_view view = text.view();
  runtime.charge_bytes(view.size());
  std::vector<MarkedText> lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t end = at;
    const char32_t c = next_char(view, at);
    const bool breaks = (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                        c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && at < view.size() && view[at] == '\n') ++at;
    runtime.charge(2);
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < view.size()) lines.push_back(text.substr(start, view.size() - start));
  return lines;
}

}  // namespace flotilla::chat
