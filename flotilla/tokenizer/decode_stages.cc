#include "flotilla/tokenizer/decode_stages.h"

#include "flotilla/base/overloaded.h"
#include "flotilla/base/text.h"
#include "flotilla/tokenizer/byte_level.h"
#include "flotilla/tokenizer/unicode.h"
#include "flotilla/tokenizer/utf8_assembler.h"

namespace flotilla::tokenizer {
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

std::unique_ptr<DecodeStage> make_append_stage(std::string& out) {
  return std::make_unique<AppendStage>(out);
}

void add_stage(const Decoder::Step& step, bool in_parts,
               std::vector<std::unique_ptr<DecodeStage>>& stages) {
  using Stage = std::unique_ptr<DecodeStage>;
  DecodeStage& next = *stages.back();
  bool needs_whole = in_parts;
  const Overloaded make = {
      [&](const Decoder::ByteLevel&) -> Stage { return std::make_unique<ByteLevelStage>(next); },
      [&](const Decoder::ByteFallback&) -> Stage {
        return std::make_unique<ByteFallbackStage>(next);
      },
      [&](const Decoder::Join&) -> Stage { return std::make_unique<JoinStage>(next); },
      [&](const Decoder::Replace& s) -> Stage { return std::make_unique<ReplaceStage>(next, s); },
      [&](const Decoder::Metaspace& s) -> Stage {
        return std::make_unique<MetaspaceStage>(next, s);
      },
      [&](const Decoder::BpeSuffix& s) -> Stage {
        return std::make_unique<BpeSuffixStage>(next, s);
      },
      [&](const Decoder::Fuse&) -> Stage {
        needs_whole = false;
        return std::make_unique<PassStage>(next);
      },
      [&](const Decoder::Strip& s) -> Stage {
        needs_whole = false;
        if (in_parts) return std::make_unique<StripFusedStage>(next, s);
        return std::make_unique<StripStage>(next, s);
      },
  };
  stages.push_back(std::visit(make, step));
  if (needs_whole) stages.push_back(std::make_unique<CollectStage>(*stages.back()));
}

}  // namespace flotilla::tokenizer
