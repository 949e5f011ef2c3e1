#include "flotilla/chat/gemma4_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "flotilla/base/text.h"
#include "flotilla/chat/gemma4_arguments.h"

namespace flotilla::chat {

namespace {

constexpr std::string_view kChannelOpen = "<|channel>";
constexpr std::string_view kChannelClose = "<channel|>";
constexpr std::string_view kCallOpen = "<|tool_call>";
constexpr std::string_view kCallClose = "<tool_call|>";
constexpr std::string_view kQuote = "<|\"|>";
constexpr std::string_view kThought = "thought\n";
constexpr std::size_t kMaxHeader = 256;  // bytes between the opener and the brace
constexpr std::size_t kMaxUnopened =
    4096;  // bytes held while a call without opener may still turn out to be one

bool is_stop(std::string_view special) {
  return special == "<turn|>" || special == "<|tool_response>" || special == "<eos>";
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == ':' || c == '-';
}

// `call:NAME{`, also `:NAME{`, `NAME{` and `call:NAME(`.
struct CallHeader {
  enum class Kind { kIncomplete, kBad, kNamed } kind = Kind::kIncomplete;
  std::string name;
  std::size_t opener = std::string_view::npos;  // where the bracket is
};

CallHeader read_header(std::string_view text) {
  CallHeader header;
  std::size_t at = 0;
  const auto skip_space = [&] {
    while (at < text.size() && trim_ascii(text.substr(at, 1)).empty()) ++at;
  };
  skip_space();
  if (text.substr(at).starts_with("call")) {
    const std::size_t word = at;
    at += 4;
    skip_space();
    if (at >= text.size() || text[at] != ':') at = word;
  }
  if (at < text.size() && text[at] == ':') ++at;
  skip_space();
  const std::size_t start = at;
  while (at < text.size() && is_name_char(text[at])) ++at;
  header.name = std::string(text.substr(start, at - start));
  skip_space();
  if (at > kMaxHeader) {
    header.kind = CallHeader::Kind::kBad;
  } else if (at < text.size()) {
    const bool is_opener = text[at] == '{' || text[at] == '(';
    header.kind =
        is_opener && !header.name.empty() ? CallHeader::Kind::kNamed : CallHeader::Kind::kBad;
    header.opener = at;
  }
  return header;
}

// Where the thought opens inside which the prompt ends, else npos: its last channel is open and no
// turn, call or result follows. Whatever a user or tool wrote is always followed by the end of
// their turn or result.
std::size_t open_thought(std::string_view prompt_tail) {
  const std::size_t open = prompt_tail.rfind(kChannelOpen);
  if (open == std::string_view::npos) return open;
  for (const std::string_view marker :
       {kChannelClose, kCallOpen, kCallClose, std::string_view("<turn|>"),
        std::string_view("<|turn>"), std::string_view("<tool_response|>")}) {
    if (prompt_tail.find(marker, open + kChannelOpen.size()) != std::string_view::npos) {
      return std::string_view::npos;
    }
  }
  return open;
}

class Gemma4Parser final : public OutputParser {
 public:
  explicit Gemma4Parser(std::string_view prompt_tail);

  std::vector<OutputDelta> push(std::string_view text, std::string_view special) override;
  std::vector<OutputDelta> finish() override;
  int num_calls() const override { return num_calls_; }
  bool inside_call() const override {
    return state_ == State::kCallHeader || state_ == State::kArguments ||
           state_ == State::kAfterArguments;
  }

 private:
  enum class State {
    kAnswer,       // held_: text that is not known to be the answer yet
    kChannelName,  // held_: what may be "thought\n"
    kReasoning,    // held_: a line end that may be the one before <channel|>
    kCallHeader,   // held_: the text since the opener
    kArguments,
    kAfterArguments,  // between the outermost bracket and <tool_call|>
    kUnreadable,      // a call that could not be read, shown as it is
    kStopped,
  };

  void on_text(std::string_view text);
  void on_special(std::string_view special);
  void on_answer(std::string_view text);
  void on_channel_name(std::string_view text);
  void on_reasoning(std::string_view text);
  void on_header(std::string_view text);
  void start_call(const CallHeader& header);
  void flush_arguments();
  void end_call();
  void leave_call_open();
  void leave_channel();
  void release_answer(bool before_markup);
  void enter_answer();
  void put(Channel channel, std::string_view text);

  State state_ = State::kAnswer;
  std::string held_;
  bool is_fresh_ = true;  // kAnswer: nothing but blanks since the start, a thought or a call
  int num_calls_ = 0;
  std::optional<Gemma4Arguments> arguments_;
  std::vector<OutputDelta> out_;
};

// The prompt ends inside a thought when its last channel is open and no turn, call or result
// follows: whatever a user or tool wrote is always followed by the end of their turn or result.
Gemma4Parser::Gemma4Parser(std::string_view prompt_tail) {
  const std::size_t open = open_thought(prompt_tail);
  if (open == std::string_view::npos) return;
  state_ = State::kChannelName;
  on_channel_name(prompt_tail.substr(open + kChannelOpen.size()));
  if (state_ == State::kReasoning) held_.clear();
  out_.clear();
}

void Gemma4Parser::put(Channel channel, std::string_view text) {
  if (text.empty()) return;
  if (!out_.empty() && out_.back().channel == channel) {
    out_.back().text += text;
  } else {
    out_.push_back({channel, std::string(text)});
  }
}

std::vector<OutputDelta> Gemma4Parser::push(std::string_view text, std::string_view special) {
  // Bytes that UTF-8 never contains stand for tokens further down.
  const auto is_foreign = [](char c) { return static_cast<unsigned char>(c) >= 0xf8; };
  if (std::any_of(text.begin(), text.end(), is_foreign)) {
    std::string clean;
    for (const char c : text) clean += is_foreign(c) ? "\xef\xbf\xbd" : std::string(1, c);
    on_text(clean);
  } else if (!text.empty()) {
    on_text(text);
  }
  if (!special.empty()) on_special(special);
  return std::exchange(out_, {});
}

void Gemma4Parser::on_text(std::string_view text) {
  switch (state_) {
    case State::kAnswer:
      return on_answer(text);
    case State::kChannelName:
      return on_channel_name(text);
    case State::kReasoning:
      return on_reasoning(text);
    case State::kCallHeader:
      return on_header(text);
    case State::kArguments:
      arguments_->push(text);
      return flush_arguments();
    case State::kAfterArguments: {
      std::size_t at = 0;
      while (at < text.size() &&
             std::string_view(" \t\n\v\f\r}])").find(text[at]) != std::string_view::npos)
        ++at;
      if (at == text.size()) return;
      enter_answer();
      return on_answer(text.substr(at));
    }
    case State::kUnreadable:
      return put(Channel::kContent, text);
    case State::kStopped:
      return;
  }
}

void Gemma4Parser::on_answer(std::string_view text) {
  if (!is_fresh_) return put(Channel::kContent, text);
  held_ += text;
  const std::string_view shown = trim_ascii(held_);
  if (shown.empty()) return;
  // A call may lack its opener; a quote token or the closing token will tell.
  static constexpr std::string_view kWord = "call:";
  const bool may_be_call =
      held_.size() <= kMaxUnopened &&
      (shown.size() < kWord.size()
           ? kWord.starts_with(shown)
           : shown.starts_with(kWord) && read_header(shown).kind != CallHeader::Kind::kBad);
  if (!may_be_call) release_answer(false);
}

// Blanks before a thought or call are layout, not answer.
void Gemma4Parser::release_answer(bool before_markup) {
  const bool is_blank = trim_ascii(held_).empty();
  if (!(is_blank && (before_markup || num_calls_ > 0))) put(Channel::kContent, held_);
  held_.clear();
  if (!is_blank) is_fresh_ = false;
}

void Gemma4Parser::enter_answer() {
  state_ = State::kAnswer;
  is_fresh_ = true;
  held_.clear();
}

void Gemma4Parser::on_channel_name(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    held_ += text[i];
    if (held_ == kThought) {
      held_.clear();
      state_ = State::kReasoning;
      return on_reasoning(text.substr(i + 1));
    }
    if (!kThought.starts_with(held_)) {
      state_ = State::kReasoning;
      const std::string name = std::exchange(held_, {});
      on_reasoning(name);
      return on_reasoning(text.substr(i + 1));
    }
  }
}

void Gemma4Parser::on_reasoning(std::string_view text) {
  if (text.empty()) return;
  put(Channel::kReasoning, std::exchange(held_, {}));
  if (text.back() == '\n') {
    held_ = "\n";
    text.remove_suffix(1);
  }
  put(Channel::kReasoning, text);
}

// The template writes one line end before the closing token; it is not part of the thought.
void Gemma4Parser::leave_channel() {
  if (state_ == State::kChannelName && held_ != kThought.substr(0, kThought.size() - 1)) {
    put(Channel::kReasoning, held_);
  }
  enter_answer();
}

void Gemma4Parser::on_header(std::string_view text) {
  held_ += text;
  const CallHeader header = read_header(held_);
  if (header.kind == CallHeader::Kind::kNamed) {
    start_call(header);
  } else if (header.kind == CallHeader::Kind::kBad) {
    put(Channel::kContent, std::string(kCallOpen) + held_);
    held_.clear();
    state_ = State::kUnreadable;
  }
}

void Gemma4Parser::start_call(const CallHeader& header) {
  const bool has_bracket = header.opener != std::string_view::npos;
  const std::string text = std::exchange(held_, {});
  arguments_.emplace(has_bracket ? text[header.opener] : '{');
  out_.push_back({Channel::kToolCall, {}, num_calls_++, header.name});
  state_ = State::kArguments;
  if (has_bracket) arguments_->push(std::string_view(text).substr(header.opener + 1));
  flush_arguments();
}

void Gemma4Parser::flush_arguments() {
  const std::string json = arguments_->take();
  if (!json.empty()) {
    if (!out_.empty() && out_.back().channel == Channel::kToolCall &&
        out_.back().call_index == num_calls_ - 1) {
      out_.back().text += json;
    } else {
      out_.push_back({Channel::kToolCall, json, num_calls_ - 1});
    }
  }
  if (!arguments_->done()) return;
  const std::string rest = arguments_->take_rest();
  arguments_.reset();
  state_ = State::kAfterArguments;
  if (!rest.empty()) on_text(rest);
}

void Gemma4Parser::end_call() {
  if (state_ == State::kArguments) {
    arguments_->end();
    flush_arguments();
  } else if (state_ == State::kCallHeader) {
    CallHeader header = read_header(held_);
    if (header.kind == CallHeader::Kind::kIncomplete && !header.name.empty() &&
        header.name != "call") {
      start_call(header);  // a call without brackets has no arguments
      arguments_->end();
      flush_arguments();
    } else {
      put(Channel::kContent, std::string(kCallOpen) + held_);
    }
  }
  enter_answer();
}

// The output ends inside a call. Closed, it would look as if the model had meant it so.
void Gemma4Parser::leave_call_open() {
  if (state_ == State::kCallHeader) put(Channel::kContent, std::string(kCallOpen) + held_);
}

void Gemma4Parser::on_special(std::string_view special) {
  if (state_ == State::kStopped) return;
  if (special == kQuote) {
    if (state_ == State::kArguments) {
      arguments_->push_quote();
      return flush_arguments();
    }
    if (state_ == State::kCallHeader || state_ == State::kAfterArguments) return;
    if (state_ == State::kAnswer && is_fresh_ &&
        read_header(trim_ascii(held_)).kind == CallHeader::Kind::kNamed) {
      held_ = std::string(trim_ascii(held_));
      start_call(read_header(held_));
      if (state_ == State::kArguments) arguments_->push_quote();
      return state_ == State::kArguments ? flush_arguments() : void();
    }
    return on_text(state_ == State::kUnreadable ? kQuote : "\"");
  }
  const bool starts_markup = special == kChannelOpen || special == kCallOpen;
  const bool ends = special == kCallClose || starts_markup || is_stop(special);
  if (special == kCallClose && state_ == State::kAnswer && is_fresh_ &&
      read_header(trim_ascii(held_)).kind == CallHeader::Kind::kNamed) {
    held_ = std::string(trim_ascii(held_));
    start_call(read_header(held_));
    return end_call();
  }
  if (special == kChannelClose) {
    if (state_ == State::kChannelName || state_ == State::kReasoning) leave_channel();
    return;
  }
  if (!ends) return;  // other control tokens are no text
  if (state_ == State::kAnswer) {
    // A stray <tool_call|> does not make the blanks before it layout.
    if (special == kCallClose) return;
    release_answer(starts_markup);
  } else if (state_ == State::kChannelName || state_ == State::kReasoning) {
    if (special == kCallClose) return;
    leave_channel();
  } else if (state_ == State::kUnreadable) {
    if (special == kCallClose) put(Channel::kContent, kCallClose);
    enter_answer();
  } else if (is_stop(special)) {
    leave_call_open();
  } else {
    const bool was_header = state_ == State::kCallHeader;
    const int calls = num_calls_;
    end_call();
    // Shown as written when it was no call.
    if (was_header && calls == num_calls_ && special == kCallClose)
      put(Channel::kContent, kCallClose);
  }
  if (special == kChannelOpen) state_ = State::kChannelName;
  if (special == kCallOpen) state_ = State::kCallHeader;
  if (is_stop(special)) state_ = State::kStopped;
  held_.clear();
}

std::vector<OutputDelta> Gemma4Parser::finish() {
  switch (state_) {
    case State::kAnswer:
      release_answer(false);
      break;
    case State::kChannelName:
      leave_channel();
      break;
    case State::kReasoning:
      put(Channel::kReasoning, held_);
      break;
    case State::kCallHeader:
    case State::kArguments:
      leave_call_open();
      break;
    case State::kAfterArguments:
    case State::kUnreadable:
    case State::kStopped:
      break;
  }
  held_.clear();
  state_ = State::kStopped;
  return std::exchange(out_, {});
}

}  // namespace

bool ends_in_gemma4_thought(std::string_view prompt_tail) {
  return open_thought(prompt_tail) != std::string_view::npos;
}

std::unique_ptr<OutputParser> make_gemma4_parser(std::string_view prompt_tail) {
  return std::make_unique<Gemma4Parser>(prompt_tail);
}

}  // namespace flotilla::chat
