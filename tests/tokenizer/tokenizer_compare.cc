// Encodes and decodes for compare.mjs: one JSON value a line in, one a line out.
//   "text"        -> [ids, ids without special tokens, decoded, decoded without special tokens]
//   [1, 2, 3]     -> [decoded, decoded without special tokens]
// With --bench FILE it prints how fast the file is encoded instead.
#include <boost/json.hpp>
#include <cstdio>
#include <ctime>
#include <string>

#include "flotilla/json/json.h"
#include "flotilla/tokenizer/tokenizer.h"

namespace {

namespace bj = boost::json;
using flotilla::TokenId;
using flotilla::tokenizer::Detokenizer;
using flotilla::tokenizer::Tokenizer;

// Of this process: the machine may be busy with something else.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// False at the end of the input.
bool read_line(std::FILE* file, std::string& line) {
  line.clear();
  char buffer[65536];
  while (std::fgets(buffer, sizeof buffer, file)) {
    line += buffer;
    if (!line.empty() && line.back() == '\n') {
      line.pop_back();
      return true;
    }
  }
  return !line.empty();
}

// The text by the stream must equal the text at once.
std::string decode_both_ways(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                             bool skip) {
  Detokenizer stream(tokenizer, skip);
  std::string pieces;
  for (const TokenId id : ids) pieces += stream.push(id);
  pieces += stream.finish();
  const std::string whole = tokenizer.decode(ids, skip);
  return pieces == whole ? whole : "STREAM DIFFERS: " + pieces + " / " + whole;
}

bj::value answer(const Tokenizer& tokenizer, const bj::value& question) {
  std::vector<TokenId> ids;
  bj::array out;
  if (question.is_string()) {
    for (const bool special : {true, false}) {
      auto encoded = tokenizer.encode(std::string_view(question.get_string()),
                                      {.add_special_tokens = special});
      if (!encoded.ok()) return bj::string(to_string(encoded.error()));
      ids = *encoded;
      out.push_back(bj::value_from(ids));
    }
  } else {
    for (const bj::value& id : question.as_array())
      ids.push_back(static_cast<TokenId>(id.to_number<int>()));
  }
  out.push_back(bj::string(decode_both_ways(tokenizer, ids, false)));
  out.push_back(bj::string(decode_both_ways(tokenizer, ids, true)));
  return out;
}

int bench(const Tokenizer& tokenizer, const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (!file) return 1;
  std::string text;
  char buffer[65536];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file)) text.append(buffer, n);
  std::fclose(file);
  double best = 1e9;
  std::size_t num_tokens = 0;
  for (int round = 0; round < 5; ++round) {
    const double begin = processor_seconds();
    auto ids = tokenizer.encode(text);
    const double seconds = processor_seconds() - begin;
    if (!ids.ok()) {
      std::fprintf(stderr, "%s\n", to_string(ids.error()).c_str());
      return 1;
    }
    num_tokens = ids->size();
    best = std::min(best, seconds);
  }
  std::printf("%zu bytes, %zu tokens, %.4f s, %.1f MB/s\n", text.size(), num_tokens, best,
              static_cast<double>(text.size()) / best / 1e6);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && !(argc == 4 && std::string_view(argv[2]) == "--bench")) {
    std::fprintf(stderr, "usage: tokenizer_compare TOKENIZER_JSON [--bench FILE] < questions\n");
    return 2;
  }
  const double begin = processor_seconds();
  auto tokenizer = Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", to_string(tokenizer.error()).c_str());
    return 1;
  }
  const double seconds = processor_seconds() - begin;
  std::fprintf(stderr, "loaded in %.3f s\n", seconds);
  if (argc == 4) return bench(**tokenizer, argv[3]);
  std::string line;
  while (read_line(stdin, line)) {
    auto question = flotilla::json::parse(line);
    if (!question.ok()) {
      std::fprintf(stderr, "%s\n", to_string(question.error()).c_str());
      return 1;
    }
    std::printf("%s\n", bj::serialize(answer(**tokenizer, *question)).c_str());
  }
  return 0;
}
