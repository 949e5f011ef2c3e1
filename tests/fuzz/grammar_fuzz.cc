// Sources of constraints: a schema, a regular expression or an EBNF; then an output drawn by the
// input's bytes. Every token of a mask must be taken, and no other.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "flotilla/grammar/compiler.h"
#include "flotilla/json/json.h"

namespace {

using namespace flotilla;

std::shared_ptr<const grammar::Vocabulary> vocabulary() {
  static const auto kVocabulary = [] {
    std::vector<std::pair<TokenId, std::string>> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(b, std::string(1, static_cast<char>(b)));
    TokenId id = 256;
    for (const char* text :
         {"\":", "\",\"", "}}", "ab", "abc", "10", "\xc3\xa4", "\xc3", "\\u", "true", ", "}) {
      tokens.emplace_back(id++, text);
    }
    return grammar::Vocabulary::from(std::move(tokens), {{"<end>", id}});
  }();
  return kVocabulary;
}

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  grammar::Constraint constraint;
  constraint.param = "source";
  const std::string source(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 3) {
    case 0: {
      auto schema = json::parse(source, {.max_depth = 100});
      if (!schema.ok()) return 0;
      constraint.kind = grammar::Constraint::Kind::kJsonSchema;
      constraint.schema = std::move(*schema);
      break;
    }
    case 1:
      constraint.kind = grammar::Constraint::Kind::kRegex;
      constraint.text = source;
      break;
    default:
      constraint.kind = grammar::Constraint::Kind::kGrammar;
      constraint.text = source;
  }
  const auto compiled = grammar::compile(constraint, nullptr, std::nullopt, vocabulary());
  if (!compiled.ok()) {
    require(!compiled.error().message.empty());
    return 0;
  }
  grammar::Matcher matcher(*compiled);
  std::vector<std::uint32_t> mask(vocabulary()->num_words());
  for (std::size_t i = 0; i < 24; ++i) {
    if (!matcher.fill_mask(mask).ok()) return 0;
    std::vector<TokenId> legal;
    for (TokenId id = 0; id < static_cast<TokenId>(vocabulary()->size()); ++id) {
      const bool allowed = (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
      grammar::Matcher fork = matcher;
      require(fork.accept(id) == allowed);
      if (allowed) legal.push_back(id);
    }
    require(!legal.empty() || matcher.is_accepting());
    if (legal.empty()) return 0;
    require(matcher.accept(legal[(data[i % size] + i) % legal.size()]));
  }
  return 0;
}
