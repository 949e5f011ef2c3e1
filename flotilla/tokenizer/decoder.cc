#include "flotilla/tokenizer/decoder.h"

#include <algorithm>
#include <boost/json.hpp>
#include <deque>

#include "flotilla/base/overloaded.h"
#include "flotilla/base/text.h"
#include "flotilla/json/json.h"
#include "flotilla/tokenizer/byte_level.h"
#include "flotilla/tokenizer/component.h"
#include "flotilla/tokenizer/unicode.h"
#include "flotilla/tokenizer/utf8_assembler.h"

namespace flotilla::tokenizer {
namespace bj = boost::json;
namespace {

// Stages between others: they know the one behind them.
class InnerStage : public DecodeStage {
 public:
  explicit InnerStage(DecodeStage& next) : next_(next) {}
  void finish() override { next_.finish(); }

 protected:
  DecodeStage& next_;
};

class AppendStage : public DecodeStage {
 public:
  explicit AppendStage(std::string& out) : out_(out) {}
  void push(std::string_view token) override { out_ += token; }
  void finish() override {}

 private:
  std::string& out_;
};

class ByteLevelStage : public InnerStage {
 public:
  using InnerStage::InnerStage;
  void push(std::string_view token) override {
    bytes_.clear();
    // A token with any other character stands for itself.
    if (!append_byte_level_bytes(bytes_, token)) bytes_ = token;
    text_.clear();
    assembler_.push(bytes_, text_);
    if (!text_.empty()) next_.push(text_);
  }
  void finish() override {
    text_.clear();
    assembler_.finish(text_);
    if (!text_.empty()) next_.push(text_);
    next_.finish();
  }

 private:
  std::string bytes_;
  std::string text_;
  Utf8Assembler assembler_;
};

// Byte tokens in a row are one text, or nothing but marks of replacement, when any of it is
// malformed. So all of the row must be here before any of it goes on.
class ByteFallbackStage : public InnerStage {
 public:
  using InnerStage::InnerStage;
  void push(std::string_view token) override {
    if (const auto byte = byte_fallback_byte(token)) {
      bytes_ += static_cast<char>(*byte);
      return;
    }
    flush();
    next_.push(token);
  }
  void finish() override {
    flush();
    next_.finish();
  }

 private:
  void flush() {
    if (bytes_.empty()) return;
    if (is_valid_utf8(bytes_)) {
      next_.push(bytes_);
    } else {
      for (std::size_t i = 0; i < bytes_.size(); ++i) next_.push("\xEF\xBF\xBD");
    }
    bytes_.clear();
  }
  std::string bytes_;
};

class JoinStage : public InnerStage {
 public:
  using InnerStage::InnerStage;
  void push(std::string_view token) override {
    if (!is_first_) next_.push(" ");
    is_first_ = false;
    next_.push(token);
  }

 private:
  bool is_first_ = true;
};

class ReplaceStage : public InnerStage {
 public:
  ReplaceStage(DecodeStage& next, const Decoder::Replace& step) : InnerStage(next), step_(step) {}
  void push(std::string_view token) override {
    matches_.clear();
    MatchBudget budget;
    text_.clear();
    if (step_.pattern.find_all(token, matches_, budget).ok()) {
      for (const Match& m : matches_)
        text_ += m.is_match ? step_.content : token.substr(m.begin, m.end - m.begin);
    } else {
      text_ = token;  // too costly a pattern: the token as it is
    }
    next_.push(text_);
  }

 private:
  const Decoder::Replace& step_;
  std::vector<Match> matches_;
  std::string text_;
};

// Takes characters off both ends of each token.
class StripStage : public InnerStage {
 public:
  StripStage(DecodeStage& next, const Decoder::Strip& step) : InnerStage(next), step_(step) {}
  void push(std::string_view token) override {
    std::string_view all = token;
    std::size_t front = 0;
    for (; front < step_.start && token.starts_with(step_.content); ++front)
      token.remove_prefix(step_.content.size());
    // The end is judged on the whole token, so both may take the same character.
    std::size_t back = 0;
    for (; back < step_.stop && all.ends_with(step_.content); ++back)
      all.remove_suffix(step_.content.size());
    const std::size_t taken = back * step_.content.size();
    next_.push(taken < token.size() ? token.substr(0, token.size() - taken) : std::string_view{});
  }

 private:
  const Decoder::Strip& step_;
};

// The same where all tokens have been joined to one, which arrives in parts.
class StripFusedStage : public InnerStage {
 public:
  StripFusedStage(DecodeStage& next, const Decoder::Strip& step) : InnerStage(next), step_(step) {}
  void push(std::string_view part) override {
    while (at_front_ && !part.empty()) {
      if (num_front_ < step_.start && part.starts_with(step_.content)) {
        part.remove_prefix(step_.content.size());
        ++num_front_;
      } else {
        at_front_ = false;
      }
    }
    if (step_.stop == 0) {
      if (!part.empty()) next_.push(part);
      return;
    }
    // Holds back as many characters as may have to go.
    held_ += part;
    std::size_t keep = held_.size();
    std::size_t n = 0;
    while (n < step_.stop && std::string_view(held_).substr(0, keep).ends_with(step_.content)) {
      keep -= step_.content.size();
      ++n;
    }
    if (keep > 0) next_.push(std::string_view(held_).substr(0, keep));
    held_.erase(0, keep);
  }

 private:
  const Decoder::Strip& step_;
  bool at_front_ = true;
  std::size_t num_front_ = 0;
  std::string held_;
};

class MetaspaceStage : public InnerStage {
 public:
  MetaspaceStage(DecodeStage& next, const Decoder::Metaspace& step)
      : InnerStage(next), step_(step) {}
  void push(std::string_view token) override {
    text_.clear();
    for (std::size_t i = 0; i < token.size();) {
      const auto [c, size] = decode_char(token.data() + i);
      if (c != step_.replacement) {
        text_ += token.substr(i, size);
      } else if (!is_first_ || !step_.drops_first) {
        text_ += ' ';
      }
      i += size;
    }
    is_first_ = false;
    next_.push(text_);
  }

 private:
  const Decoder::Metaspace& step_;
  bool is_first_ = true;
  std::string text_;
};

// The suffix that marks the end of a word is a blank, but nothing at the very end.
class BpeSuffixStage : public InnerStage {
 public:
  BpeSuffixStage(DecodeStage& next, const Decoder::BpeSuffix& step)
      : InnerStage(next), step_(step) {}
  void push(std::string_view token) override {
    if (has_held_) next_.push(replaced(" "));
    held_ = token;
    has_held_ = true;
  }
  void finish() override {
    if (has_held_) next_.push(replaced(""));
    next_.finish();
  }

 private:
  std::string replaced(std::string_view by) const {
    if (step_.suffix.empty()) return held_;
    std::string text;
    std::size_t pos = 0;
    for (std::size_t at; (at = held_.find(step_.suffix, pos)) != std::string::npos;
         pos = at + step_.suffix.size()) {
      text.append(held_, pos, at - pos);
      text += by;
    }
    return text.append(held_, pos);
  }
  const Decoder::BpeSuffix& step_;
  bool has_held_ = false;
  std::string held_;
};

// Makes one token of all parts, for a stage that must see the joined text at once.
class CollectStage : public InnerStage {
 public:
  using InnerStage::InnerStage;
  void push(std::string_view part) override { text_ += part; }
  void finish() override {
    next_.push(text_);
    next_.finish();
  }

 private:
  std::string text_;
};

class PassStage : public InnerStage {
 public:
  using InnerStage::InnerStage;
  void push(std::string_view token) override { next_.push(token); }
};

}  // namespace

Decoder::Stream::Stream(const Decoder& decoder, std::string& out) {
  // After these steps there is one joined token, which later stages get in parts.
  std::vector<bool> is_fused;
  bool fused = false;
  for (const Step& step : decoder.steps_) {
    is_fused.push_back(fused);
    fused = fused || std::holds_alternative<Fuse>(step) || std::holds_alternative<ByteLevel>(step);
  }
  stages_.push_back(std::make_unique<AppendStage>(out));
  for (std::size_t i = decoder.steps_.size(); i-- > 0;) {
    DecodeStage& next = *stages_.back();
    const bool in_parts = is_fused[i];
    bool needs_whole = in_parts;
    stages_.push_back(std::visit(Overloaded{
                                     [&](const ByteLevel&) -> std::unique_ptr<DecodeStage> {
                                       return std::make_unique<ByteLevelStage>(next);
                                     },
                                     [&](const ByteFallback&) -> std::unique_ptr<DecodeStage> {
                                       return std::make_unique<ByteFallbackStage>(next);
                                     },
                                     [&](const Fuse&) -> std::unique_ptr<DecodeStage> {
                                       needs_whole = false;
                                       return std::make_unique<PassStage>(next);
                                     },
                                     [&](const Join&) -> std::unique_ptr<DecodeStage> {
                                       return std::make_unique<JoinStage>(next);
                                     },
                                     [&](const Replace& s) -> std::unique_ptr<DecodeStage> {
                                       return std::make_unique<ReplaceStage>(next, s);
                                     },
                                     [&](const Strip& s) -> std::unique_ptr<DecodeStage> {
                                       needs_whole = false;
                                       if (in_parts)
                                         return std::make_unique<StripFusedStage>(next, s);
                                       return std::make_unique<StripStage>(next, s);
                                     },
                                     [&](const Metaspace& s) -> std::unique_ptr<DecodeStage> {
                                       return std::make_unique<MetaspaceStage>(next, s);
                                     },
                                     [&](const BpeSuffix& s) -> std::unique_ptr<DecodeStage> {
                                       return std::make_unique<BpeSuffixStage>(next, s);
                                     },
                                 },
                                 decoder.steps_[i]));
    if (needs_whole) stages_.push_back(std::make_unique<CollectStage>(*stages_.back()));
  }
}
Decoder::Stream::~Stream() = default;
Decoder::Stream::Stream(Stream&&) noexcept = default;
Decoder::Stream& Decoder::Stream::operator=(Stream&&) noexcept = default;
void Decoder::Stream::push(std::string_view token) { stages_.back()->push(token); }
void Decoder::Stream::finish() { stages_.back()->finish(); }

std::string Decoder::middle_bytes(std::string_view token) const {
  std::string text(token);
  for (const Step& any : steps_) {
    if (std::holds_alternative<ByteLevel>(any)) {
      std::string bytes;
      return append_byte_level_bytes(bytes, text) ? bytes : text;
    }
    if (std::holds_alternative<ByteFallback>(any)) {
      if (const auto byte = byte_fallback_byte(text))
        return std::string(1, static_cast<char>(*byte));
    } else if (const auto* replace = std::get_if<Replace>(&any)) {
      std::string out;
      AppendStage end(out);
      ReplaceStage(end, *replace).push(text);
      text = std::move(out);
    } else if (const auto* meta = std::get_if<Metaspace>(&any)) {
      Metaspace keeps_all = *meta;
      keeps_all.drops_first = false;
      std::string out;
      AppendStage end(out);
      MetaspaceStage(end, keeps_all).push(text);
      text = std::move(out);
    } else if (const auto* bpe = std::get_if<BpeSuffix>(&any)) {
      std::string out;
      AppendStage end(out);
      BpeSuffixStage stage(end, *bpe);
      stage.push(text);
      stage.push("");
      text = std::move(out);
    } else if (std::holds_alternative<Fuse>(any)) {
      break;  // what follows looks at the ends of the whole text
    }
  }
  return text;
}

Status Decoder::parse_into(const bj::value& value, const std::string& where, int depth,
                           std::vector<Step>& steps) {
  if (depth > kMaxNesting)
    return Error{ErrorCode::kInvalidArgument, "tokenizer: " + where + " is nested too deep"};
  FLOTILLA_TRY(const std::string type, component_type(value, where));
  if (type == "Sequence") {
    FLOTILLA_TRY(const bj::array* parts, read_components(value, "decoders", where));
    for (const bj::value& part : *parts)
      FLOTILLA_TRY_STATUS(parse_into(part, where + ".decoders", depth + 1, steps));
  } else if (type == "ByteLevel") {
    steps.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps.emplace_back(Fuse{});
  } else if (type == "Replace") {
    FLOTILLA_TRY(Matcher pattern, read_pattern(value, where));
    FLOTILLA_TRY(std::string content, json::require_string(value, "content", where));
    steps.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Strip") {
    FLOTILLA_TRY(const char32_t c, read_char(value, "content", where));
    FLOTILLA_TRY(const auto start, json::require_int(value, "start", 0, 1 << 20, where));
    FLOTILLA_TRY(const auto stop, json::require_int(value, "stop", 0, 1 << 20, where));
    Strip step{.content = {},
               .start = static_cast<std::size_t>(start),
               .stop = static_cast<std::size_t>(stop)};
    append_utf8(step.content, c);
    steps.emplace_back(std::move(step));
  } else if (type == "Metaspace") {
    FLOTILLA_TRY(const char32_t c, read_char(value, "replacement", where));
    FLOTILLA_TRY(const auto scheme, json::get_string(value, "prepend_scheme", where));
    FLOTILLA_TRY(const auto prefix, json::get_bool(value, "add_prefix_space", where));
    steps.emplace_back(Metaspace{c, prefix.value_or(true) && scheme.value_or("always") != "never"});
  } else if (type == "BPEDecoder") {
    FLOTILLA_TRY(std::string suffix, json::require_string(value, "suffix", where));
    steps.emplace_back(BpeSuffix{std::move(suffix)});
  } else {
    return unsupported_component(where, type);
  }
  return ok_status();
}

Result<Decoder> Decoder::parse(const bj::value* value) {
  Decoder result;
  if (value) {
    FLOTILLA_TRY_STATUS(parse_into(*value, "decoder", 0, result.steps_));
  } else {
    result.steps_.emplace_back(Join{});
  }
  return result;
}

}  // namespace flotilla::tokenizer
