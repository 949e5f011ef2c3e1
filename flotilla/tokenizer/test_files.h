// Small tokenizer.json texts for the tests of this module.
#pragma once

#include <gtest/gtest.h>
#include <time.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flotilla/tokenizer/byte_level.h"
#include "flotilla/tokenizer/tokenizer.h"

namespace flotilla::tokenizer::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;  // some ten times slower
#else
inline constexpr bool kIsSanitized = false;
#endif

// What `work` takes of processor time: the machine may be busy with something else.
template <class Work>
double seconds_of(Work work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double begin = now();
  work();
  return now() - begin;
}

struct FileParts {
  std::vector<std::string> vocab;  // ids by position
  std::vector<std::pair<std::string, std::string>> merges;
  std::string added;  // JSON objects, separated by commas
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = "null";
  std::string model_settings;  // more members of the model, each followed by a comma
};

inline std::string make_file(const FileParts& parts) {
  boost::json::object vocab;
  for (std::size_t i = 0; i < parts.vocab.size(); ++i) vocab[parts.vocab[i]] = i;
  boost::json::array merges;
  for (const auto& [left, right] : parts.merges) merges.push_back({left, right});
  return R"({"version":"1.0","truncation":{"max_length":1},"padding":{"x":1},"added_tokens":[)" +
         parts.added + R"(],"normalizer":)" + parts.normalizer + R"(,"pre_tokenizer":)" +
         parts.pre_tokenizer + R"(,"post_processor":)" + parts.post_processor + R"(,"decoder":)" +
         parts.decoder + R"(,"model":{"type":"BPE",)" + parts.model_settings + R"("vocab":)" +
         boost::json::serialize(vocab) + R"(,"merges":)" + boost::json::serialize(merges) + "}}";
}

inline std::string added_token(std::string_view content, std::string_view flags = "special") {
  const auto flag = [&](std::string_view name) {
    return ",\"" + std::string(name) +
           "\":" + (flags.find(name) != std::string_view::npos ? "true" : "false");
  };
  return "{\"id\":0,\"content\":" + boost::json::serialize(boost::json::string(content)) +
         flag("single_word") + flag("lstrip") + flag("rstrip") + flag("normalized") +
         flag("special") + "}";
}

inline constexpr std::string_view kByteLevel =
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";

// All 256 letters of the byte-level alphabet, ids by byte.
inline std::vector<std::string> byte_level_vocab() {
  std::vector<std::string> vocab;
  for (unsigned b = 0; b < 256; ++b)
    vocab.emplace_back(byte_level_char(static_cast<std::uint8_t>(b)));
  return vocab;
}

inline std::shared_ptr<const Tokenizer> must_parse(const FileParts& parts) {
  auto tokenizer = Tokenizer::parse(make_file(parts));
  EXPECT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  return *tokenizer;
}

inline Error parse_error(const std::string& text) {
  auto tokenizer = Tokenizer::parse(text);
  EXPECT_FALSE(tokenizer.ok()) << text.substr(0, 300);
  return tokenizer.ok() ? Error{} : tokenizer.error();
}

// The tokens of `text`, joined by '|'.
inline std::string tokens_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string joined;
  for (const TokenId id : ids) {
    if (!joined.empty()) joined += '|';
    joined += tokenizer.id_to_token(id).value_or("?");
  }
  return joined;
}
inline std::string tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.encode(text);
  EXPECT_TRUE(ids.ok()) << to_string(ids.error());
  return ids.ok() ? tokens_of(tokenizer, *ids) : std::string();
}

}  // namespace flotilla::tokenizer::testing
