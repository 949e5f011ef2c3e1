// The arguments of a Gemma 4 call, turned from the model's notation into JSON while they stream.
//
//   {city:<|"|>Oslo<|"|>,days:3}   ->   {"city":"Oslo","days":3}
//
// Nothing is taken back: a scalar is held until it is complete, and a quote token until what
// follows shows whether it ends the text. The notation has no escapes, so a quote token inside a
// text is ambiguous. It ends the text only when the call goes on as a call from there: closing
// brackets and then the end of the call, or a comma and then, inside an object, a key with its
// colon. Otherwise it is a quotation mark of the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace flotilla::chat {

class Gemma4Arguments {
 public:
  // `opener` is '{', or '(' as some models write.
  explicit Gemma4Arguments(char opener);

  // Ordinary text without the bytes 0xf8 to 0xff, and the token <|"|>. Not to be called once
  // done().
  void push(std::string_view text);
  void push_quote();
  // The call ended here: closes what is open.
  void end();

  // The JSON text that became certain since the last call.
  std::string take();
  // The outermost object is closed.
  bool done() const { return state_ == State::kDone; }
  // Text behind the object, without the brackets that have no partner.
  std::string take_rest();

 private:
  enum class State { kKey, kElement, kValue, kText, kBare, kAfterValue, kDone };
  enum class Verdict { kYes, kNo, kUnknown };
  struct Frame {
    bool is_object;
    bool is_first = true;
    std::unordered_set<std::string> keys = {};
  };

  void run();
  bool step();  // false: needs more input
  bool step_key();
  bool step_quoted_key(char quote);
  bool step_element();
  bool step_value();
  bool step_text();
  bool step_escape();
  bool step_bare();
  bool step_after_value();

  void emit(std::string_view json);
  void emit_character(char c);  // of a text, escaped
  void start_key(std::string_view key);
  void open(bool is_object);
  void close();
  void value_done();
  void close_all();
  bool skip_space();  // false when the input ends
  bool is_closer(char c) const { return c == '}' || c == ']' || (c == ')' && is_call_style_); }
  bool is_colon(char c) const { return c == ':' || (c == '=' && is_call_style_); }
  // Whether the call can go on at `at`, behind the end of a value.
  Verdict continues(std::size_t at) const;
  Verdict key_follows(std::size_t at) const;

  const bool is_call_style_;
  State state_ = State::kKey;
  std::vector<Frame> frames_;
  std::string input_;  // unread from at_ on; tokens are the bytes kQuoteByte and kEndByte
  std::size_t at_ = 0;
  std::size_t scan_ = 0;   // kBare: how far the scalar was read
  int inner_[3] = {};      // kBare: brackets open inside the scalar
  char quote_ = 0;         // kText: what ends it
  std::size_t muted_ = 0;  // frames at the key that came twice; 0: none
  std::string output_;
};

}  // namespace flotilla::chat
