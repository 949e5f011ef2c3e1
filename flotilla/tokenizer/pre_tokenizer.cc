#include "flotilla/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/base/overloaded.h"
#include "flotilla/base/text.h"
#include "flotilla/json/json.h"
#include "flotilla/tokenizer/byte_level.h"
#include "flotilla/tokenizer/component.h"
#include "flotilla/tokenizer/unicode.h"

namespace flotilla::tokenizer {
namespace bj = boost::json;

namespace {
// Calls is_in(c) for each character; appends runs as single matches of one character, as the
// reference does.
template <class IsIn>
void match_chars(std::string_view text, IsIn is_in, std::vector<Match>& out) {
  std::size_t previous = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto [c, size] = decode_char(text.data() + i);
    if (is_in(c)) {
      if (previous != i) out.push_back({previous, i, false});
      out.push_back({i, i + size, true});
      previous = i + size;
    }
    i += size;
  }
  if (previous != text.size()) out.push_back({previous, text.size(), false});
}
}  // namespace

void PreTokenizer::split(const Piece& piece, std::vector<Match>& matches, Behavior behavior,
                         std::vector<Piece>& out) {
  const auto emit = [&](std::size_t begin, std::size_t end) {
    if (begin < end)
      out.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
  };
  switch (behavior) {
    case Behavior::kIsolated:
      for (const Match& m : matches) emit(m.begin, m.end);
      return;
    case Behavior::kRemoved:
      for (const Match& m : matches) {
        if (!m.is_match) emit(m.begin, m.end);
      }
      return;
    default:
      break;
  }
  // The other behaviours join a match with a neighbour: the joined pieces are gathered first.
  if (behavior == Behavior::kMergedWithNext) std::reverse(matches.begin(), matches.end());
  std::vector<Match> joined;
  bool previous_match = false;
  for (const Match& m : matches) {
    const bool joins = behavior == Behavior::kContiguous ? m.is_match == previous_match
                                                         : m.is_match && !previous_match;
    if (joins && !joined.empty()) {
      if (behavior == Behavior::kMergedWithNext)
        joined.back().begin = m.begin;
      else
        joined.back().end = m.end;
    } else {
      joined.push_back(m);
    }
    previous_match = m.is_match;
  }
  if (behavior == Behavior::kMergedWithNext) std::reverse(joined.begin(), joined.end());
  for (const Match& m : joined) emit(m.begin, m.end);
}

void PreTokenizer::apply(const SplitChars& step, const Piece& piece, PieceBuffer& buffer) {
  buffer.matches.clear();
  const auto match = [&](auto is_in) { match_chars(piece.text, is_in, buffer.matches); };
  switch (step.set) {
    case CharSet::kSpaces:
      match(is_space);
      break;
    case CharSet::kNumbers:
      match([](char32_t c) { return (char_class(c) & kNumber) != 0; });
      break;
    case CharSet::kPunctuation:
      match(is_punctuation);
      break;
    case CharSet::kOne:
      match([&](char32_t c) { return c == step.one; });
      break;
  }
  split(piece, buffer.matches, step.behavior, buffer.next);
}

void PreTokenizer::apply(const Words&, const Piece& piece, PieceBuffer& buffer) {
  enum class Kind { kBlank, kWord, kOther };
  const auto kind_of = [](char32_t c) {
    if (is_word(c, true)) return Kind::kWord;
    return is_space(c) ? Kind::kBlank : Kind::kOther;
  };
  std::size_t begin = 0;
  Kind kind = Kind::kBlank;
  const auto flush = [&](std::size_t end) {
    if (kind != Kind::kBlank && begin < end) {
      buffer.next.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
    }
    begin = end;
  };
  for (std::size_t i = 0; i < piece.text.size();) {
    const auto [c, size] = decode_char(piece.text.data() + i);
    const Kind now = kind_of(c);
    if (now != kind) {
      flush(i);
      kind = now;
    }
    i += size;
  }
  flush(piece.text.size());
}

void PreTokenizer::apply(const Metaspace& step, Piece piece, PieceBuffer& buffer) {
  std::string& text = buffer.texts.emplace_back();
  const bool may_prepend = step.prepend == Metaspace::Prepend::kAlways ||
                           (step.prepend == Metaspace::Prepend::kFirst && piece.at_start);
  if (may_prepend && !piece.text.starts_with(step.replacement) && !piece.text.starts_with(' ')) {
    text = step.replacement;
  }
  for (const char c : piece.text) {
    if (c == ' ')
      text += step.replacement;
    else
      text += c;
  }
  piece.text = text;
  if (!step.split) {
    buffer.next.push_back(piece);
    return;
  }
  buffer.matches.clear();
  const char32_t one = decode_char(step.replacement.data()).code_point;
  match_chars(
      piece.text, [one](char32_t c) { return c == one; }, buffer.matches);
  split(piece, buffer.matches, Behavior::kMergedWithNext, buffer.next);
}

void PreTokenizer::apply(const FixedLength& step, const Piece& piece, PieceBuffer& buffer) {
  std::size_t begin = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < piece.text.size();) {
    i += decode_char(piece.text.data() + i).size;
    if (++count < step.length && i < piece.text.size()) continue;
    buffer.next.push_back({piece.text.substr(begin, i - begin), piece.at_start && begin == 0});
    begin = i;
    count = 0;
  }
}

Status PreTokenizer::run(PieceBuffer& buffer, MatchBudget& budget) const {
  for (const Step& any : steps_) {
    buffer.next.clear();
    for (const Piece& piece : buffer.pieces) {
      FLOTILLA_TRY_STATUS(std::visit(
          Overloaded{
              [&](const SplitPattern& step) -> Status {
                buffer.matches.clear();
                FLOTILLA_TRY_STATUS(step.pattern.find_all(piece.text, buffer.matches, budget));
                if (step.invert) {
                  for (Match& m : buffer.matches) m.is_match = !m.is_match;
                }
                split(piece, buffer.matches, step.behavior, buffer.next);
                return ok_status();
              },
              [&](const PrependSpace&) {
                Piece changed = piece;
                if (!piece.text.starts_with(' '))
                  changed.text = buffer.texts.emplace_back(" " + std::string(piece.text));
                buffer.next.push_back(changed);
                return ok_status();
              },
              [&](const MapBytes&) {
                std::string& text = buffer.texts.emplace_back();
                append_byte_level(text, piece.text);
                buffer.next.push_back({text, piece.at_start});
                return ok_status();
              },
              [&](const auto& step) { return apply(step, piece, buffer), ok_status(); },
          },
          any));
    }
    std::swap(buffer.pieces, buffer.next);
  }
  return ok_status();
}

Result<PreTokenizer::Behavior> PreTokenizer::parse_behavior(const std::string& name,
                                                            const std::string& where) {
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return Error{ErrorCode::kUnsupported,
               "tokenizer: " + where + ".behavior '" + name + "' is not supported"};
}

Status PreTokenizer::parse_into(const bj::value& value, const std::string& where, int depth,
                                std::vector<Step>& steps) {
  if (depth > kMaxNesting)
    return Error{ErrorCode::kInvalidArgument, "tokenizer: " + where + " is nested too deep"};
  FLOTILLA_TRY(const std::string type, component_type(value, where));
  if (type == "Sequence") {
    FLOTILLA_TRY(const bj::array* parts, read_components(value, "pretokenizers", where));
    for (const bj::value& part : *parts) {
      FLOTILLA_TRY_STATUS(parse_into(part, where + ".pretokenizers", depth + 1, steps));
    }
  } else if (type == "Split") {
    FLOTILLA_TRY(Matcher pattern, read_pattern(value, where));
    FLOTILLA_TRY(const std::string name, json::require_string(value, "behavior", where));
    FLOTILLA_TRY(const Behavior behavior, parse_behavior(name, where));
    FLOTILLA_TRY(const bool invert, json::require_bool(value, "invert", where));
    steps.emplace_back(SplitPattern{std::move(pattern), behavior, invert});
  } else if (type == "ByteLevel") {
    FLOTILLA_TRY(const bool prefix, json::require_bool(value, "add_prefix_space", where));
    FLOTILLA_TRY(const auto use_regex, json::get_bool(value, "use_regex", where));
    if (prefix) steps.emplace_back(PrependSpace{});
    if (use_regex.value_or(true)) {
      FLOTILLA_TRY(Matcher pattern, Matcher::regex(std::string(kGpt2Pattern)));
      steps.emplace_back(SplitPattern{std::move(pattern), Behavior::kIsolated, false});
    }
    steps.emplace_back(MapBytes{});
  } else if (type == "Metaspace") {
    FLOTILLA_TRY(const char32_t c, read_char(value, "replacement", where));
    FLOTILLA_TRY(const auto scheme, json::get_string(value, "prepend_scheme", where));
    FLOTILLA_TRY(const auto prefix, json::get_bool(value, "add_prefix_space", where));
    FLOTILLA_TRY(const auto does_split, json::get_bool(value, "split", where));
    Metaspace step;
    append_utf8(step.replacement, c);
    const std::string name = scheme.value_or("always");
    if (name == "first") {
      step.prepend = Metaspace::Prepend::kFirst;
    } else if (name == "never") {
      step.prepend = Metaspace::Prepend::kNever;
    } else if (name != "always") {
      return Error{ErrorCode::kInvalidArgument,
                   "tokenizer: " + where + ".prepend_scheme '" + name + "' is unknown"};
    }
    if (prefix == false) {
      if (scheme && name != "never") {
        return Error{
            ErrorCode::kInvalidArgument,
            "tokenizer: " + where + ".add_prefix_space contradicts prepend_scheme '" + name + "'"};
      }
      step.prepend = Metaspace::Prepend::kNever;
    }
    step.split = does_split.value_or(true);
    steps.emplace_back(std::move(step));
  } else if (type == "Digits") {
    FLOTILLA_TRY(const bool individual, json::require_bool(value, "individual_digits", where));
    steps.emplace_back(
        SplitChars{CharSet::kNumbers, individual ? Behavior::kIsolated : Behavior::kContiguous});
  } else if (type == "Punctuation") {
    FLOTILLA_TRY(const auto name, json::get_string(value, "behavior", where));
    FLOTILLA_TRY(const Behavior behavior, parse_behavior(name.value_or("Isolated"), where));
    steps.emplace_back(SplitChars{CharSet::kPunctuation, behavior});
  } else if (type == "Whitespace") {
    steps.emplace_back(Words{});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(SplitChars{CharSet::kSpaces, Behavior::kRemoved});
  } else if (type == "BertPreTokenizer") {
    steps.emplace_back(SplitChars{CharSet::kSpaces, Behavior::kRemoved});
    steps.emplace_back(SplitChars{CharSet::kPunctuation, Behavior::kIsolated});
  } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
    FLOTILLA_TRY(const char32_t c, read_char(value, "delimiter", where));
    steps.emplace_back(SplitChars{CharSet::kOne, Behavior::kRemoved, c});
  } else if (type == "FixedLength") {
    FLOTILLA_TRY(const auto length, json::get_int(value, "length", 1, 1 << 20, where));
    steps.emplace_back(FixedLength{static_cast<std::size_t>(length.value_or(5))});
  } else {
    return unsupported_component(where, type);
  }
  return ok_status();
}

Result<PreTokenizer> PreTokenizer::parse(const bj::value* value) {
  PreTokenizer result;
  if (!value) return result;
  FLOTILLA_TRY_STATUS(parse_into(*value, "pre_tokenizer", 0, result.steps_));
  if (!result.steps_.empty() && std::holds_alternative<MapBytes>(result.steps_.back())) {
    result.steps_.pop_back();
    result.ends_in_byte_level_ = true;
  }
  return result;
}

}  // namespace flotilla::tokenizer
