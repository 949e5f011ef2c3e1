// A tokenizer.json and a text: load, encode as a whole and in spans, decode at once and as a
// stream.
//
// Input: the length of the file in two bytes (little end first), the file, then the text. When the
// file is empty the text goes through fixed tokenizers instead, so that the inner loops are reached
// without guessing JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/check.h"
#include "flotilla/base/text.h"
#include "flotilla/tokenizer/tokenizer.h"

namespace {

using flotilla::TextSpan;
using flotilla::TokenId;
using flotilla::tokenizer::Detokenizer;
using flotilla::tokenizer::Tokenizer;

constexpr std::string_view kFixed[] = {
    // Byte level with letters for a few bytes only, lower case, flags of every kind.
    R"json({"added_tokens":[
      {"id":9,"content":"<m>","single_word":false,"lstrip":true,"rstrip":false,"normalized":false,"special":true},
      {"id":9,"content":"<u>","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,"special":false},
      {"id":9,"content":"<w>","single_word":true,"lstrip":true,"rstrip":true,"normalized":true,"special":true},
      {"id":9,"content":"\n","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false}],
      "normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},{"type":"StripAccents"}]},
      "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"use_regex":true},
      "decoder":{"type":"ByteLevel"},
      "model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,
        "vocab":{"<unk>":0,"a":1,"b":2,"ab":3,"Ġ":4,"Ġa":5,"aa":6,"aaa":7,"c":8},
        "merges":["a b","Ġ a","a a","aa a"]}})json",
    R"json({"added_tokens":[{"id":9,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":true,"special":true}],
      "normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"▁"},
        {"type":"Replace","pattern":{"Regex":"\\s+"},"content":"▁"}]},
      "pre_tokenizer":{"type":"Sequence","pretokenizers":[
        {"type":"Split","pattern":{"Regex":"\\w+|[^\\w\\s]|(?=a)"},"behavior":"MergedWithNext","invert":false},
        {"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}]},
      "decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},
        {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":1}]},
      "model":{"type":"BPE","unk_token":"<unk>","byte_fallback":true,
        "vocab":{"<unk>":0,"a":1,"b":2,"ab":3,"▁":4,"▁a":5,"<0xE2>":6,"<0x96>":7,"<0x81>":8,"<0x62>":9},
        "merges":[["a","b"],["▁","a"],["▁","a"]]}})json",
};

// What must hold for any tokenizer and any text.
void check(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.encode(text);
  (void)tokenizer.encode(text, {.max_tokens = 3});
  const std::size_t third = text.size() / 3;
  const std::vector<TextSpan> spans = {{std::string(text.substr(0, third)), true},
                                       {std::string(text.substr(third, third)), false},
                                       {std::string(text.substr(2 * third)), true}};
  (void)tokenizer.encode(spans);
  const std::vector<TextSpan> typed = {{std::string(text), false}};
  if (auto forged = tokenizer.encode(typed, {.add_special_tokens = false}); forged.ok()) {
    for (const TokenId id : *forged) {
      const auto token = tokenizer.id_to_token(id);
      // The unknown token of the fixed files is no control token; files that make it one are left
      // out here.
      FLOTILLA_CHECK(!tokenizer.is_special(id) ||
                         (token && *token != "<m>" && *token != "<w>" && *token != "<s>"),
                     "typed text became a control token");
    }
  }
  std::vector<TokenId> all = {-1, 1 << 25};
  if (ids.ok()) all.insert(all.end(), ids->begin(), ids->end());
  for (const char c : text.substr(0, 64)) all.push_back(static_cast<unsigned char>(c) % 16);
  for (const bool skip : {false, true}) {
    Detokenizer stream(tokenizer, skip);
    std::string pieces;
    for (const TokenId id : all) {
      const std::string piece = stream.push(id);
      FLOTILLA_CHECK(flotilla::is_valid_utf8(piece), "half a character");
      pieces += piece;
      (void)tokenizer.token_bytes(id);
    }
    pieces += stream.finish();
    FLOTILLA_CHECK(pieces == tokenizer.decode(all, skip), "stream and whole differ");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::size_t file_size = std::min<std::size_t>(data[0] | data[1] << 8, input.size());
  const std::string_view text = input.substr(file_size);
  if (file_size > 0) {
    if (auto tokenizer = Tokenizer::parse(input.substr(0, file_size)); tokenizer.ok())
      check(**tokenizer, text);
    return 0;
  }
  static const std::vector<std::shared_ptr<const Tokenizer>> fixed = [] {
    std::vector<std::shared_ptr<const Tokenizer>> made;
    for (const std::string_view file : kFixed) {
      auto tokenizer = Tokenizer::parse(file);
      FLOTILLA_CHECK(tokenizer.ok(), "a fixed file is refused");
      made.push_back(*tokenizer);
    }
    return made;
  }();
  for (const auto& tokenizer : fixed) check(*tokenizer, text);
  return 0;
}
