// The decoder of tokenizer.json: turns the strings of tokens into text. It works on a stream, so
// that a whole sequence and one token after the other take the same way.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/tokenizer/matcher.h"

namespace flotilla::tokenizer {

// One step of a running decoder. Tokens come in one by one, in order; finish() is called once at
// the end.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(std::string_view token) = 0;
  virtual void finish() = 0;
};

// Immutable; safe from any thread. Must outlive the streams that it makes.
class Decoder {
 public:
  // Without a decoder in the file the tokens are joined by blanks.
  static Result<Decoder> parse(const boost::json::value* value);

  // A running decoder that appends text to `out`; what it appends is always whole characters. `out`
  // may be emptied between calls and must outlive the stream.
  class Stream {
   public:
    Stream(const Decoder& decoder, std::string& out);
    ~Stream();
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    void push(std::string_view token);
    void finish();

   private:
    std::vector<std::unique_ptr<DecodeStage>> stages_;  // the last one writes; the first one reads
  };

  // The bytes that a token of the model gives in the middle of a text.
  std::string middle_bytes(std::string_view token) const;

  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Join {};  // no decoder: blanks between the tokens
  struct Replace {
    Matcher pattern;
    std::string content;
  };
  struct Strip {
    std::string content;  // one character
    std::size_t start = 0;
    std::size_t stop = 0;
  };
  struct Metaspace {
    char32_t replacement = 0;
    bool drops_first = false;
  };
  struct BpeSuffix {
    std::string suffix;
  };
  using Step =
      std::variant<ByteLevel, ByteFallback, Fuse, Join, Replace, Strip, Metaspace, BpeSuffix>;

 private:
  static Status parse_into(const boost::json::value& value, const std::string& where, int depth,
                           std::vector<Step>& steps);
  std::vector<Step> steps_;
};

}  // namespace flotilla::tokenizer
