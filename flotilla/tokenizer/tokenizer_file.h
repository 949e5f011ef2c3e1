// Reads tokenizer.json as a stream: the large tables of the model go straight into compact form,
// the rest becomes a JSON value. A file of 32 MB needs about that much memory on the way.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/tokenizer/vocab.h"

namespace flotilla::tokenizer {

inline constexpr std::size_t kMaxTokenizerFileBytes = 128u << 20;

// The two halves of each merge, in order of rank.
class RawMerges {
 public:
  void add(std::string_view left, std::string_view right);
  std::size_t size() const { return ends_.size() / 2; }
  std::string_view left(std::size_t rank) const { return part(2 * rank); }
  std::string_view right(std::size_t rank) const { return part(2 * rank + 1); }

 private:
  std::string_view part(std::size_t i) const {
    const std::uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return {text_.data() + begin, ends_[i] - begin};
  }
  std::string text_;
  std::vector<std::uint32_t> ends_;  // end of left and right, alternating
};

struct TokenizerFile {
  boost::json::value root;  // model.vocab and model.merges are null in it
  Vocab vocab;
  RawMerges merges;
  bool has_vocab = false;   // as an object of token: id
  bool has_merges = false;  // as an array
};

// Errors are kInvalidArgument or kTooLarge and name the place.
Result<TokenizerFile> read_tokenizer_file(std::string_view json);

}  // namespace flotilla::tokenizer
