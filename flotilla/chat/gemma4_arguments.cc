#include "flotilla/chat/gemma4_arguments.h"

#include <algorithm>
#include <utility>

#include "flotilla/base/text.h"
#include "flotilla/chat/gemma4_scalars.h"

namespace flotilla::chat {

namespace {

// Bytes that UTF-8 never contains stand for tokens.
constexpr char kQuoteByte = '\xff';
constexpr char kEndByte = '\xfe';
constexpr std::size_t kMaxDepth =
    48;  // deeper brackets are read as text, so that clients can parse the result
constexpr std::size_t kMaxKey = 128;     // bytes that are searched for the colon of a key
constexpr std::size_t kMaxClosers = 64;  // bytes of brackets and blanks that are looked through

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string plain_quotes(std::string_view text) {
  std::string out(text);
  std::replace(out.begin(), out.end(), kQuoteByte, '"');
  return out;
}

bool is_text_quote(char c) { return c == '"' || c == '\'' || c == '`'; }

}  // namespace

Gemma4Arguments::Gemma4Arguments(char opener) : is_call_style_(opener == '(') { open(true); }

void Gemma4Arguments::push(std::string_view text) {
  input_ += text;
  run();
}
void Gemma4Arguments::push_quote() {
  input_ += kQuoteByte;
  run();
}
void Gemma4Arguments::end() {
  input_ += kEndByte;
  run();
  if (!done()) close_all();
}

std::string Gemma4Arguments::take() { return std::exchange(output_, {}); }

std::string Gemma4Arguments::take_rest() {
  std::string rest;
  for (; at_ < input_.size(); ++at_) {
    const char c = input_[at_];
    if (c == kQuoteByte || c == kEndByte) continue;
    if (rest.empty() && (is_space(c) || c == '}' || c == ']' || c == ')')) continue;
    rest += c;
  }
  input_.clear();
  at_ = 0;
  return rest;
}

void Gemma4Arguments::run() {
  while (!done() && step()) {
  }
  // Drop what was read, seldom enough to stay linear.
  if (at_ > 4096 && at_ * 2 > input_.size()) {
    input_.erase(0, at_);
    scan_ -= std::min(scan_, at_);
    at_ = 0;
  }
}

bool Gemma4Arguments::step() {
  switch (state_) {
    case State::kKey:
      return step_key();
    case State::kElement:
      return step_element();
    case State::kValue:
      return step_value();
    case State::kText:
      return step_text();
    case State::kBare:
      return step_bare();
    case State::kAfterValue:
      return step_after_value();
    case State::kDone:
      break;
  }
  return false;
}

void Gemma4Arguments::emit(std::string_view json) {
  if (muted_ == 0) output_ += json;
}
void Gemma4Arguments::emit_character(char c) {
  if (muted_ == 0) append_json_character(output_, c);
}

void Gemma4Arguments::open(bool is_object) {
  emit(is_object ? "{" : "[");
  frames_.push_back({is_object});
  state_ = is_object ? State::kKey : State::kElement;
}

void Gemma4Arguments::close() {
  emit(frames_.back().is_object ? "}" : "]");
  frames_.pop_back();
  value_done();
}

void Gemma4Arguments::value_done() {
  if (frames_.size() == muted_) muted_ = 0;
  state_ = frames_.empty() ? State::kDone : State::kAfterValue;
}

void Gemma4Arguments::close_all() {
  if (state_ == State::kText) {
    emit("\"");
    value_done();
  }
  if (state_ == State::kValue) {
    emit("null");
    value_done();
  }
  while (!frames_.empty()) close();
}

void Gemma4Arguments::start_key(std::string_view key) {
  Frame& frame = frames_.back();
  state_ = State::kValue;
  // JSON readers disagree on a key that comes twice: the first stays, as it is out already.
  if (!frame.keys.emplace(key).second) {
    if (muted_ == 0) muted_ = frames_.size();
    return;
  }
  if (!frame.is_first) emit(",");
  frame.is_first = false;
  emit(json_quoted(plain_quotes(key)));
  emit(":");
}

bool Gemma4Arguments::skip_space() {
  while (at_ < input_.size() && is_space(input_[at_])) ++at_;
  return at_ < input_.size();
}

bool Gemma4Arguments::step_key() {
  if (!skip_space()) return false;
  const char c = input_[at_];
  if (c == kEndByte) {
    close_all();
    return true;
  }
  if (c == '}' || (c == ')' && is_call_style_ && frames_.size() == 1)) {
    ++at_;
    close();
    return true;
  }
  if (c == ',' || c == '{' || c == '[' || c == ']' || c == ')' || is_colon(c)) {
    ++at_;  // noise between members, such as a brace written twice
    return true;
  }
  if (c == kQuoteByte || is_text_quote(c)) return step_quoted_key(c);
  std::size_t end = at_;
  while (end < input_.size()) {
    const char d = input_[end];
    if (is_colon(d) || d == ',' || d == '{' || d == '[' || is_closer(d) || d == kQuoteByte ||
        d == kEndByte)
      break;
    ++end;
  }
  if (end >= input_.size()) return false;
  start_key(trim_ascii(std::string_view(input_).substr(at_, end - at_)));
  at_ = end;
  // What is no colon starts the value, or shows that there is none.
  if (is_colon(input_[at_])) ++at_;
  return true;
}

bool Gemma4Arguments::step_quoted_key(char quote) {
  std::size_t end = at_ + 1;
  while (end < input_.size() && input_[end] != quote && input_[end] != kEndByte) ++end;
  if (end >= input_.size()) return false;
  if (input_[end] == quote) {
    // The colon must be seen, else it would be taken for the start of the value.
    std::size_t colon = end + 1;
    while (colon < input_.size() && is_space(input_[colon])) ++colon;
    if (colon >= input_.size()) return false;
    start_key(std::string_view(input_).substr(at_ + 1, end - at_ - 1));
    at_ = is_colon(input_[colon]) ? colon + 1 : colon;
    return true;
  }
  start_key(std::string_view(input_).substr(at_ + 1, end - at_ - 1));
  at_ = end;
  return true;
}

bool Gemma4Arguments::step_element() {
  if (!skip_space()) return false;
  const char c = input_[at_];
  if (c == kEndByte) {
    close_all();
  } else if (c == ']') {
    ++at_;
    close();
  } else if (is_closer(c)) {
    close();  // the bracket of the array is missing; what was read closes the level above
  } else if (c == ',') {
    ++at_;
  } else {
    if (!frames_.back().is_first) emit(",");
    frames_.back().is_first = false;
    state_ = State::kValue;
  }
  return true;
}

bool Gemma4Arguments::step_value() {
  if (!skip_space()) return false;
  const char c = input_[at_];
  if (c == kEndByte || c == ',' || is_closer(c)) {
    emit("null");
    value_done();
  } else if (c == kQuoteByte || is_text_quote(c)) {
    quote_ = c;
    ++at_;
    emit("\"");
    state_ = State::kText;
  } else if ((c == '{' || c == '[') && frames_.size() < kMaxDepth) {
    ++at_;
    open(c == '{');
  } else {
    state_ = State::kBare;
    scan_ = at_;
    std::fill(std::begin(inner_), std::end(inner_), 0);
  }
  return true;
}

bool Gemma4Arguments::step_text() {
  while (at_ < input_.size()) {
    const char c = input_[at_];
    if (c == kEndByte) {
      close_all();
      return true;
    }
    if (c == quote_ || c == kQuoteByte) {
      const Verdict verdict = continues(at_ + 1);
      if (verdict == Verdict::kUnknown) return false;
      ++at_;
      if (verdict == Verdict::kYes) {
        emit("\"");
        value_done();
        return true;
      }
      emit_character(c == kQuoteByte ? '"' : c);
    } else if (c == '\\' && quote_ != kQuoteByte) {
      if (!step_escape()) return false;
    } else {
      emit_character(c);
      ++at_;
    }
  }
  return false;
}

// An escape inside a text that the model quoted as in JSON or Python.
bool Gemma4Arguments::step_escape() {
  if (at_ + 1 >= input_.size()) return false;
  const char c = input_[at_ + 1];
  if (c == '\'' || c == '`') {
    emit_character(c);
    at_ += 2;
  } else if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    emit(std::string_view(input_).substr(at_, 2));
    at_ += 2;
  } else {
    emit_character('\\');  // not an escape, or \u, which is kept as written: half a surrogate pair
                           // would be no text
    ++at_;
  }
  return true;
}

bool Gemma4Arguments::step_bare() {
  const bool in_object = frames_.back().is_object;
  for (; scan_ < input_.size(); ++scan_) {
    const char c = input_[scan_];
    Verdict ends = Verdict::kNo;
    std::size_t skipped = 0;
    if (c == kEndByte) {
      ends = Verdict::kYes;
    } else if (c == kQuoteByte) {
      ends = continues(scan_ + 1);  // the opening quote is missing
      skipped = 1;
    } else if (c == ',') {
      ends = in_object ? key_follows(scan_ + 1) : Verdict::kYes;
    } else if (c == '{' || c == '[' || c == '(') {
      ++inner_[c == '{' ? 0 : c == '[' ? 1 : 2];
    } else if (is_closer(c)) {
      int& inner = inner_[c == '}' ? 0 : c == ']' ? 1 : 2];
      if (inner > 0) {
        --inner;
      } else {
        const bool is_own = c == (in_object ? '}' : ']');
        ends = is_own ? Verdict::kYes : continues(scan_);
      }
    }
    if (ends == Verdict::kUnknown) return false;
    if (ends == Verdict::kNo) continue;
    std::string_view text = trim_ascii(std::string_view(input_).substr(at_, scan_ - at_));
    if (c == kEndByte) {
      // Brackets that the scalar swallowed belong to the call.
      for (std::size_t i = 0; i < frames_.size() && !text.empty() && is_closer(text.back()); ++i) {
        text = trim_ascii(text.substr(0, text.size() - 1));
      }
    }
    const std::string plain = plain_quotes(text);
    emit(skipped ? json_quoted(plain) : json_scalar(plain));
    at_ = scan_ + skipped;
    value_done();
    return true;
  }
  return false;
}

bool Gemma4Arguments::step_after_value() {
  if (!skip_space()) return false;
  const char c = input_[at_];
  const bool in_object = frames_.back().is_object;
  if (c == kEndByte) {
    close_all();
  } else if (c == ',') {
    ++at_;
    state_ = in_object ? State::kKey : State::kElement;
  } else if (is_closer(c)) {
    const bool is_own = c == (in_object ? '}' : ']') || (c == ')' && frames_.size() == 1);
    if (is_own) {
      ++at_;
      close();
    } else if (in_object) {
      ++at_;  // a bracket without partner
    } else {
      close();
    }
  } else if (c == kQuoteByte && in_object) {
    ++at_;  // a quote token behind a value that had none
  } else {
    state_ = in_object ? State::kKey : State::kElement;  // the comma is missing
  }
  return true;
}

Gemma4Arguments::Verdict Gemma4Arguments::continues(std::size_t at) const {
  std::size_t closers = 0;
  const std::size_t start = at;
  for (; at < input_.size() && at - start < kMaxClosers; ++at) {
    const char c = input_[at];
    if (is_closer(c)) {
      ++closers;
    } else if (!is_space(c)) {
      break;
    }
  }
  if (at - start >= kMaxClosers) return Verdict::kNo;
  if (at >= input_.size()) return Verdict::kUnknown;
  const char c = input_[at];
  if (c == kEndByte) return Verdict::kYes;
  if (c != ',' || closers >= frames_.size()) return Verdict::kNo;
  return frames_[frames_.size() - 1 - closers].is_object ? key_follows(at + 1) : Verdict::kYes;
}

Gemma4Arguments::Verdict Gemma4Arguments::key_follows(std::size_t at) const {
  const std::size_t start = at;
  while (at < input_.size() && is_space(input_[at]) && at - start < kMaxKey) ++at;
  if (at >= input_.size()) return Verdict::kUnknown;
  if (input_[at] == kEndByte || input_[at] == '}') return Verdict::kYes;
  char quote = 0;
  if (input_[at] == kQuoteByte || is_text_quote(input_[at])) quote = input_[at++];
  const std::size_t key = at;
  for (; at < input_.size() && at - start < kMaxKey; ++at) {
    const char c = input_[at];
    if (quote ? c == quote : is_colon(c)) break;
    if (c == '\n' || std::string_view(",{}[]():=\"'`<>;\xff\xfe").find(c) != std::string_view::npos)
      return Verdict::kNo;
  }
  if (at - start >= kMaxKey) return Verdict::kNo;
  if (at >= input_.size()) return Verdict::kUnknown;
  if (at == key) return Verdict::kNo;
  if (!quote) return Verdict::kYes;
  ++at;
  while (at < input_.size() && is_space(input_[at]) && at - start < kMaxKey) ++at;
  if (at >= input_.size()) return Verdict::kUnknown;
  return is_colon(input_[at]) ? Verdict::kYes : Verdict::kNo;
}

}  // namespace flotilla::chat
