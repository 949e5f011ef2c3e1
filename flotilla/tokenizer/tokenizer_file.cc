#include "flotilla/tokenizer/tokenizer_file.h"

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <optional>

namespace flotilla::tokenizer {
namespace bj = boost::json;

void RawMerges::add(std::string_view left, std::string_view right) {
  text_ += left;
  ends_.push_back(static_cast<std::uint32_t>(text_.size()));
  text_ += right;
  ends_.push_back(static_cast<std::uint32_t>(text_.size()));
}

namespace {

constexpr std::size_t kMaxDepth = 64;
// Values outside of the two tables. The largest file in use has about 50,000.
constexpr std::size_t kMaxValues = 2'000'000;

bool is_member_of_interest(std::string_view key) {
  for (const std::string_view known : {"version", "added_tokens", "normalizer", "pre_tokenizer",
                                       "post_processor", "decoder", "model"}) {
    if (key == known) return true;
  }
  return false;
}

// Receives the events of the parser. Where they go depends on the mode.
class Handler {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using ec = bj::error_code;

  TokenizerFile file;
  std::optional<Error> error;
  bj::value_stack stack;

  bool on_document_begin(ec&) { return true; }
  bool on_document_end(ec&) { return true; }

  bool on_object_begin(ec& e) {
    if (mode_ == Mode::kTree && at_model_member("vocab")) {
      begin_table(Mode::kVocab);
      file.has_vocab = true;
      file.vocab = Vocab{};
      return true;
    }
    if (mode_ == Mode::kVocab)
      return fail(e, "model.vocab: the id of '" + key_ + "' is not an integer");
    if (mode_ == Mode::kMerges) return fail(e, bad_merge());
    return container(e);
  }
  bool on_object_end(std::size_t n, ec&) {
    const bool was_table = leave();
    if (mode_ == Mode::kTree && !was_table) stack.push_object(n);
    return true;
  }
  bool on_array_begin(ec& e) {
    if (mode_ == Mode::kTree && at_model_member("merges")) {
      begin_table(Mode::kMerges);
      file.has_merges = true;
      file.merges = RawMerges{};
      return true;
    }
    // A list of (token, score) pairs belongs to another model type; the type is judged later.
    if (mode_ == Mode::kTree && at_model_member("vocab")) {
      begin_table(Mode::kSkip);
      return true;
    }
    if (mode_ == Mode::kVocab)
      return fail(e, "model.vocab: the id of '" + key_ + "' is not an integer");
    if (mode_ == Mode::kMerges) {
      if (depth_ != table_depth_) return fail(e, bad_merge());
      num_parts_ = 0;
    }
    return container(e);
  }
  bool on_array_end(std::size_t n, ec& e) {
    if (mode_ == Mode::kMerges && depth_ > table_depth_) {
      if (num_parts_ != 2) return fail(e, bad_merge());
      file.merges.add(parts_[0], parts_[1]);
    }
    const bool was_table = leave();
    if (mode_ == Mode::kTree && !was_table) stack.push_array(n);
    return true;
  }
  bool on_key_part(bj::string_view s, std::size_t, ec&) {
    partial_ += std::string_view(s);
    return true;
  }
  bool on_key(bj::string_view s, std::size_t, ec&) {
    key_.swap(partial_);
    key_ += std::string_view(s);
    partial_.clear();
    if (mode_ == Mode::kTree) {
      if (depth_ <= 2) keys_[depth_] = key_;
      stack.push_key(key_);
    }
    return true;
  }
  bool on_string_part(bj::string_view s, std::size_t, ec&) {
    partial_ += std::string_view(s);
    return true;
  }
  bool on_string(bj::string_view s, std::size_t, ec& e) {
    std::string_view text(s);
    if (!partial_.empty()) {
      partial_ += text;
      text = partial_;
    }
    const bool ok = add_string(text, e);
    partial_.clear();
    return ok;
  }
  bool on_number_part(bj::string_view, ec&) { return true; }
  bool on_int64(std::int64_t n, bj::string_view, ec& e) {
    if (mode_ == Mode::kVocab) {
      if (n < 0 || n > kMaxTokenId) {
        return fail(e, "model.vocab: the id " + std::to_string(n) + " is not between 0 and " +
                           std::to_string(kMaxTokenId));
      }
      file.vocab.add(key_, static_cast<TokenId>(n));
      return true;
    }
    return scalar(e, [&] { stack.push_int64(n); });
  }
  bool on_uint64(std::uint64_t n, bj::string_view s, ec& e) {
    if (mode_ == Mode::kVocab) return on_int64(std::int64_t{kMaxTokenId} + 1, s, e);
    return scalar(e, [&] { stack.push_uint64(n); });
  }
  bool on_double(double x, bj::string_view, ec& e) {
    return scalar(e, [&] { stack.push_double(x); });
  }
  bool on_bool(bool b, ec& e) {
    return scalar(e, [&] { stack.push_bool(b); });
  }
  bool on_null(ec& e) {
    return scalar(e, [&] { stack.push_null(); });
  }
  bool on_comment_part(bj::string_view, ec&) { return true; }
  bool on_comment(bj::string_view, ec&) { return true; }

 private:
  enum class Mode { kTree, kVocab, kMerges, kSkip };

  bool at_model_member(std::string_view name) const {
    return depth_ == 2 && keys_[1] == "model" && keys_[2] == name;
  }
  void enter() {
    ++depth_;
    if (depth_ <= 2) keys_[depth_].clear();
  }
  // A container that belongs to no table, or to a member that is skipped.
  bool container(ec& e) {
    if (mode_ == Mode::kTree) {
      if (depth_ == 1 && !is_member_of_interest(keys_[1])) {
        begin_table(Mode::kSkip);
        return true;
      }
      if (!count_value(e)) return false;
    }
    enter();
    return true;
  }
  bool count_value(ec& e) {
    if (++num_values_ <= kMaxValues) return true;
    fail(e, "tokenizer has more than " + std::to_string(kMaxValues) + " values beside its tables");
    error->code = ErrorCode::kTooLarge;
    return false;
  }
  void begin_table(Mode mode) {
    mode_ = mode;
    enter();
    table_depth_ = depth_;
  }
  // True when the container that ends was one of the tables.
  bool leave() {
    --depth_;
    if (mode_ == Mode::kTree || depth_ >= table_depth_) return false;
    mode_ = Mode::kTree;
    stack.push_null();
    return true;
  }
  template <class Push>
  bool scalar(ec& e, Push push) {
    switch (mode_) {
      case Mode::kTree:
        if (!count_value(e)) return false;
        push();
        return true;
      case Mode::kVocab:
        return fail(e, "model.vocab: the id of '" + key_ + "' is not an integer");
      case Mode::kMerges:
        return fail(e, bad_merge());
      case Mode::kSkip:
        return true;
    }
    return true;
  }
  bool add_string(std::string_view text, ec& e) {
    if (mode_ != Mode::kMerges) return scalar(e, [&] { stack.push_string(text); });
    if (depth_ == table_depth_) {  // "left right"
      if (text.starts_with("#version")) return true;
      const std::size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return fail(e, bad_merge());
      }
      file.merges.add(text.substr(0, space), text.substr(space + 1));
      return true;
    }
    if (num_parts_ >= 2) return fail(e, bad_merge());
    parts_[num_parts_++] = text;
    return true;
  }
  std::string bad_merge() const {
    return "model.merges[" + std::to_string(file.merges.size()) + "] is not a pair of tokens";
  }
  bool fail(ec& e, std::string message) {
    error = Error{ErrorCode::kInvalidArgument, std::move(message)};
    e = bj::error::syntax;
    return false;
  }

  Mode mode_ = Mode::kTree;
  std::size_t depth_ = 0;
  std::size_t table_depth_ = 0;
  std::size_t num_values_ = 0;
  std::string keys_[3];  // keys_[d]: the last key seen in the container at depth d
  std::string key_;
  std::string partial_;
  std::string parts_[2];
  std::size_t num_parts_ = 0;
};

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view json) {
  if (json.size() > kMaxTokenizerFileBytes) {
    return Error{ErrorCode::kTooLarge, "tokenizer of " + std::to_string(json.size()) +
                                           " bytes exceeds the limit of " +
                                           std::to_string(kMaxTokenizerFileBytes)};
  }
  if (json.starts_with("\xEF\xBB\xBF")) json.remove_prefix(3);
  bj::parse_options options;
  options.max_depth = kMaxDepth;
  bj::basic_parser<Handler> parser(options);
  Handler& handler = parser.handler();
  handler.stack.reset();
  bj::error_code ec;
  const std::size_t read = parser.write_some(false, json.data(), json.size(), ec);
  if (handler.error) return *handler.error;
  if (!ec && json.find_first_not_of(" \t\r\n", read) != std::string_view::npos)
    ec = bj::error::extra_data;
  if (ec) {
    return Error{ErrorCode::kInvalidArgument,
                 "tokenizer is invalid JSON at byte " + std::to_string(read) + ": " + ec.message()};
  }
  handler.file.root = handler.stack.release();
  if (!handler.file.root.is_object())
    return Error{ErrorCode::kInvalidArgument, "tokenizer is not a JSON object"};
  handler.file.vocab.seal();
  return std::move(handler.file);
}

}  // namespace flotilla::tokenizer
