// Shared by the tests of grammar/.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/grammar/compiler.h"
#include "flotilla/json/json.h"

namespace flotilla::grammar {

inline constexpr TokenId kOpenCall = 300, kCloseCall = 301, kQuoteToken = 302, kEndToken = 303,
                         kOpenThought = 304, kCloseThought = 305;

// All bytes, texts of several bytes (some cut inside a character), and control tokens.
inline std::shared_ptr<const Vocabulary> small_vocabulary() {
  static const std::shared_ptr<const Vocabulary> kVocabulary = [] {
    std::vector<std::pair<TokenId, std::string>> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(b, std::string(1, static_cast<char>(b)));
    TokenId id = 310;
    for (const char* text :
         {"\":",      "\": ",     "\",",      "\", \"",   "{\"",      "\"}",   "\"}}",     "[{\"",
          "]}",       "}}",       "],",       "},{\"",    "true",     "false", "null",     "ab",
          "abc",      "abcd",     " a",       "the",      "10",       "00",    "123",      "-1",
          "0.",       ".5",       "e1",       "\\n",      "\\u00",    "\\\"",  "\xc3\xa4", "\xc3",
          "\xe2\x82", "\x82\xac", "\xf0\x9f", "\x98\x80", "a\xc3",    "\"a",   "a\"",      "1,",
          "1}",       ", ",       ": ",       "name",     "\"name\"", "id",    "type",     "\x80",
          "\xff",     "  ",       "\n",       "call",     "call:",    "{",     "x:",       "<|\"|>",
          "<eos>",    "2024-0",   "-02-29",   "T12:"}) {
      tokens.emplace_back(id++, text);
    }
    return Vocabulary::from(std::move(tokens), {{"<|tool_call>", kOpenCall},
                                                {"<tool_call|>", kCloseCall},
                                                {"<|\"|>", kQuoteToken},
                                                {"<turn|>", kEndToken},
                                                {"<|channel>", kOpenThought},
                                                {"<channel|>", kCloseThought}});
  }();
  return kVocabulary;
}

inline const std::optional<CallSyntax> kCallSyntax = CallSyntax{kOpenCall, kCloseCall, kQuoteToken};

inline boost::json::value value_of(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : boost::json::value();
}

inline Constraint schema_constraint(std::string_view schema) {
  Constraint c;
  c.kind = Constraint::Kind::kJsonSchema;
  c.schema = value_of(schema);
  c.param = "schema";
  return c;
}

inline Constraint text_constraint(Constraint::Kind kind, std::string text) {
  Constraint c;
  c.kind = kind;
  c.text = std::move(text);
  c.param = "text";
  return c;
}

inline Result<std::shared_ptr<CompiledGrammar>> compile_small(const Constraint& constraint,
                                                              std::string_view tools = "null") {
  return compile(constraint, value_of(tools), kCallSyntax, small_vocabulary());
}

inline std::shared_ptr<CompiledGrammar> compiled(const Constraint& constraint,
                                                 std::string_view tools = "null") {
  auto out = compile_small(constraint, tools);
  EXPECT_TRUE(out.ok()) << out.error().message;
  return out.ok() ? *out : nullptr;
}

// Whether the whole of `text` is a complete output.
inline bool accepts(const std::shared_ptr<CompiledGrammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.accept_bytes(text) && matcher.is_accepting();
}

inline bool is_set(const std::vector<std::uint32_t>& mask, TokenId id) {
  return (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
}

// The automaton read in the most literal way: all stacks of return states, one byte at a time.
class LiteralMatcher {
 public:
  explicit LiteralMatcher(const Automaton& automaton) : a_(automaton) {
    places_ = close({{automaton.start}});
  }
  bool read(std::string_view bytes, TokenId control) {
    if (bytes.empty())
      return step([control](const Edge& e) {
        return e.kind == Edge::Kind::kControl && e.argument == static_cast<std::uint32_t>(control);
      });
    for (const char c : bytes) {
      const auto byte = static_cast<std::uint8_t>(c);
      if (!step([byte](const Edge& e) {
            return e.kind == Edge::Kind::kByte && e.lo <= byte && byte <= e.hi;
          })) {
        return false;
      }
    }
    return true;
  }
  bool accepting() const { return places_.contains({}); }

 private:
  using Place = std::vector<StateId>;  // the state last; before it the returns, outermost first
  template <class Fits>
  bool step(Fits fits) {
    std::set<Place> reached;
    for (const Place& place : places_) {
      if (place.empty()) continue;
      for (std::uint32_t e = a_.first_edge[place.back()]; e < a_.first_edge[place.back() + 1];
           ++e) {
        if (!fits(a_.edges[e])) continue;
        Place next = place;
        next.back() = a_.edges[e].target;
        reached.insert(std::move(next));
      }
    }
    places_ = close(std::move(reached));
    return !places_.empty();
  }
  // The empty place stands for the end of the whole.
  std::set<Place> close(std::set<Place> todo) const {
    std::set<Place> out;
    while (!todo.empty()) {
      Place place = std::move(todo.extract(todo.begin()).value());
      if (place.empty()) {
        out.insert(place);
        continue;
      }
      const StateId state = place.back();
      if (a_.distance[state] == kNever || !out.insert(place).second) continue;
      for (std::uint32_t e = a_.first_edge[state]; e < a_.first_edge[state + 1]; ++e) {
        const Edge& edge = a_.edges[e];
        if (a_.distance[edge.target] == kNever) continue;
        Place next = place;
        next.back() = edge.target;
        if (edge.kind == Edge::Kind::kEmpty) todo.insert(std::move(next));
        if (edge.kind == Edge::Kind::kCall && a_.distance[a_.rule_start[edge.argument]] != kNever) {
          next.push_back(a_.rule_start[edge.argument]);
          todo.insert(std::move(next));
        }
      }
      if (a_.ends_rule[state] != 0) {
        Place next = place;
        next.pop_back();
        todo.insert(std::move(next));
      }
    }
    return out;
  }
  const Automaton& a_;
  std::set<Place> places_;
};

}  // namespace flotilla::grammar
