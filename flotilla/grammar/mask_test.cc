#include <array>
#include <functional>

#include "flotilla/grammar/output_constraint.h"
#include "flotilla/grammar/testing.h"

namespace flotilla::grammar {
namespace {

constexpr std::string_view kTools = R"([{"type":"function","function":{"name":"find","parameters":
  {"type":"object","properties":{"q":{"type":"string"},"limit":{"type":"integer","minimum":0},
   "tags":{"type":"array","items":{"enum":["a","b c"]}}},"required":["q"]}}},
  {"type":"function","function":{"name":"now"}}])";

// Goes through an output at random; at every token compares the whole mask with the literal
// reading.
void expect_exact_masks(const std::shared_ptr<CompiledGrammar>& grammar, std::uint32_t seed,
                        int tokens) {
  std::mt19937 random(seed);
  Matcher matcher(grammar);
  LiteralMatcher literal(grammar->automaton());
  const Vocabulary& vocabulary = grammar->vocabulary();
  std::vector<std::uint32_t> mask(vocabulary.num_words());
  for (int i = 0; i < tokens; ++i) {
    ASSERT_EQ(matcher.is_accepting(), literal.accepting());
    // Now and then within a budget that matters.
    const std::uint64_t budget =
        random() % 3 == 0 ? matcher.distance() + random() % 4 : ~std::uint64_t{0};
    ASSERT_TRUE(matcher.fill_mask(mask, budget).ok());
    std::vector<TokenId> legal;
    for (TokenId id = 0; id < static_cast<TokenId>(vocabulary.size()); ++id) {
      LiteralMatcher after = literal;
      const bool fits = after.read(vocabulary.bytes(id), id);
      Matcher fork = matcher;
      ASSERT_EQ(fork.accept(id), fits) << "token " << id;
      ASSERT_EQ(is_set(mask, id), fits && fork.distance() <= budget)
          << "token " << id << " after " << i << " tokens, seed " << seed;
      if (is_set(mask, id)) legal.push_back(id);
    }
    if (legal.empty()) {
      ASSERT_TRUE(matcher.is_accepting() || budget < matcher.distance());
      return;
    }
    const TokenId chosen = legal[random() % legal.size()];
    ASSERT_TRUE(matcher.accept(chosen));
    ASSERT_TRUE(literal.read(vocabulary.bytes(chosen), chosen));
  }
}

TEST(Masks, EqualTheLiteralReadingForManyConstraints) {
  std::vector<std::shared_ptr<CompiledGrammar>> grammars;
  for (
      const char* schema :
      {R"({"type":"object","properties":{"name":{"type":"string"},"id":{"type":"integer"}},"required":["id"]})",
       R"({"type":"array","items":{"type":"array","items":{"type":"string","maxLength":3}},"minItems":1})",
       R"({"type":"string","maxLength":5})", R"({"type":"string","minLength":2,"maxLength":3})",
       R"({"type":"string","pattern":"^(ab|abc)+d?$"})", R"({"type":"string","pattern":"a.c"})",
       R"({"enum":["the","then","ther\"e",1,10,100,null,[1,"a"],{"a":{}}]})",
       R"({"type":"number","minimum":-1.5,"maximum":12.25})",
       R"({"type":["integer","null"],"multipleOf":3})",
       R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"v":{"type":"boolean"},"t":{"$ref":"#/$defs/t"}}}}})",
       R"({"type":"string","format":"date-time"})", R"({"type":"string","format":"email"})",
       R"({"type":"object","additionalProperties":{"type":"null"},"properties":{"a":true},"minProperties":1})",
       R"({"type":"object","patternProperties":{"^x":{"type":"integer"}},"additionalProperties":false})",
       R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"maxProperties":2,"minProperties":1})",
       R"({})",
       R"({"anyOf":[{"type":"string","maxLength":4},{"type":"string","pattern":"^a+$"}]})"}) {
    grammars.push_back(compiled(schema_constraint(schema)));
  }
  grammars.push_back(compiled({.kind = Constraint::Kind::kJsonObject}));
  grammars.push_back(
      compiled(text_constraint(Constraint::Kind::kRegex, "(a|b)*abb|\\d{2,4}(ä|€|😀)+")));
  grammars.push_back(compiled(text_constraint(
      Constraint::Kind::kGrammar, "root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"")));
  grammars.push_back(
      compiled({.kind = Constraint::Kind::kChoice, .choices = {"a", "ab", "abc", "the", "<eos>"}}));
  for (const Constraint::Calls calls : {Constraint::Calls::kForced, Constraint::Calls::kStrict}) {
    grammars.push_back(compiled({.calls = calls, .function = {}}, kTools));
  }
  std::uint32_t seed = 1;
  for (std::size_t g = 0; g < grammars.size(); ++g) {
    ASSERT_TRUE(grammars[g]);
    for (int round = 0; round < 6; ++round) {
      expect_exact_masks(grammars[g], seed++, 25);
      if (testing::Test::HasFatalFailure()) {
        FAIL() << "grammar " << g;
      }
    }
  }
}

// Random regular expressions: many states, ambiguous, with characters of several bytes.
TEST(Masks, EqualTheLiteralReadingForRandomExpressions) {
  std::mt19937 random(5);
  const std::function<std::string(int)> make = [&](int depth) -> std::string {
    static constexpr std::array<const char*, 9> kAtoms = {"a", "b",    "abc", "[a-d]", ".",
                                                          "ä", "[^a]", "€",   "\\d"};
    switch (depth == 0 ? 0 : random() % 6) {
      case 1:
        return make(depth - 1) + make(depth - 1);
      case 2:
        return "(?:" + make(depth - 1) + "|" + make(depth - 1) + ")";
      case 3:
        return "(?:" + make(depth - 1) + ")" +
               std::array{"*", "+", "?", "{1,3}", "{2}"}[random() % 5];
      default:
        return kAtoms[random() % kAtoms.size()];
    }
  };
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::string pattern = make(4);
    const bool as_string = i % 2 == 0;
    auto grammar = as_string ? compiled(schema_constraint(boost::json::serialize(
                                   boost::json::object{{"type", "string"}, {"pattern", pattern}})))
                             : compiled(text_constraint(Constraint::Kind::kRegex, pattern));
    ASSERT_TRUE(grammar) << pattern;
    expect_exact_masks(grammar, i, 12);
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << pattern;
  }
}

// All levels of a limited string share one walk; each must still have its own mask.
TEST(Masks, LengthLimitsShareOneWalkOfTheVocabulary) {
  const auto grammar = compiled(schema_constraint(R"({"type":"string","maxLength":300})"));
  Matcher matcher(grammar);
  std::vector<std::uint32_t> mask(grammar->vocabulary().num_words());
  ASSERT_TRUE(matcher.accept_bytes("\""));
  ASSERT_TRUE(matcher.fill_mask(mask).ok());
  const std::uint64_t walks = grammar->num_walks();
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(matcher.fill_mask(mask).ok());
    ASSERT_EQ(is_set(mask, 'a'), true) << i;
    ASSERT_EQ(is_set(mask, '"'), true) << i;
    const TokenId abcd = 327;
    ASSERT_EQ(grammar->vocabulary().bytes(abcd), "abcd");
    ASSERT_EQ(is_set(mask, abcd), i <= 296) << i;
    ASSERT_TRUE(matcher.accept('a'));
  }
  ASSERT_TRUE(matcher.fill_mask(mask).ok());
  EXPECT_FALSE(is_set(mask, 'a'));
  EXPECT_TRUE(is_set(mask, '"'));
  EXPECT_EQ(grammar->num_walks(), walks);
}

TEST(Matcher, ForksGoTheirOwnWays) {
  const auto grammar = compiled({.kind = Constraint::Kind::kChoice, .choices = {"abc", "abd"}});
  Matcher a(grammar);
  ASSERT_TRUE(a.accept_bytes("ab"));
  Matcher b = a;
  EXPECT_TRUE(a.accept('c'));
  EXPECT_TRUE(b.accept('d'));
  EXPECT_TRUE(a.is_finished() && b.is_finished());
  EXPECT_FALSE(a.accept('d'));
}

TEST(Matcher, SurvivesThatEverythingRememberedIsDropped) {
  // Wide classes at many positions fill the memory.
  const auto grammar = compiled(text_constraint(Constraint::Kind::kRegex, "(?:[^x]*a[^x]{12})*"));
  expect_exact_masks(grammar, 3, 10);
}

TEST(Matcher, LongRecursionKeepsItsStack) {
  const auto grammar =
      compiled(text_constraint(Constraint::Kind::kGrammar, "root ::= \"(\" root? \")\""));
  Matcher matcher(grammar);
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(matcher.accept('('));
  EXPECT_EQ(matcher.distance(), 5000u);
  for (int i = 0; i < 4999; ++i) ASSERT_TRUE(matcher.accept(')'));
  EXPECT_FALSE(matcher.is_accepting());
  ASSERT_TRUE(matcher.accept(')'));
  EXPECT_TRUE(matcher.is_finished());
}

// Runs an output whose every token is drawn at random; ends when the constraint says so.
struct Outcome {
  std::string text;
  bool complete = false;
  std::int64_t tokens = 0;
};
Outcome run_at_random(const std::shared_ptr<CompiledGrammar>& grammar, std::int64_t max_tokens,
                      std::uint32_t seed,
                      ConstraintPlan::Start start = ConstraintPlan::Start::kAnswer) {
  std::mt19937 random(seed);
  auto plan = std::make_shared<ConstraintPlan>();
  plan->grammar = grammar;
  plan->start = start;
  plan->thought_open = kOpenThought;
  plan->thought_close = kCloseThought;
  OutputConstraint constraint(plan, 500, {kEndToken});
  Outcome out;
  std::vector<std::uint32_t> words;
  while (out.tokens < max_tokens) {
    EXPECT_TRUE(constraint.allowed(max_tokens - out.tokens, false, words).ok());
    std::vector<TokenId> legal;
    for (TokenId id = 0; id < 500; ++id) {
      if (is_set(words, id)) legal.push_back(id);
    }
    if (legal.empty()) ADD_FAILURE() << "no token may come";
    if (legal.empty()) return out;
    const TokenId id = legal[random() % legal.size()];
    ++out.tokens;
    if (id == kEndToken) {
      out.complete = true;
      return out;
    }
    EXPECT_TRUE(constraint.accept(id).ok());
    out.text += grammar->vocabulary().bytes(id);
    if (constraint.is_finished()) {
      out.complete = true;
      return out;
    }
  }
  return out;
}

TEST(OutputConstraint, ClosesBeforeTheLimit) {
  const auto grammar = compiled(schema_constraint(
      R"({"type":"object","properties":{"name":{"type":"string"},"list":{"type":"array","items":{"type":["string","array","number"]}}},
          "required":["name","list"]})"));
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const std::int64_t limit = 24 + seed % 40;
    const Outcome outcome = run_at_random(grammar, limit, seed);
    EXPECT_TRUE(outcome.complete) << outcome.text;
    EXPECT_TRUE(json::parse(outcome.text).ok()) << outcome.text;
  }
  // Too short for any answer: the end comes nearer with every token, and the rest is cut.
  const Outcome cut = run_at_random(grammar, 5, 1);
  EXPECT_FALSE(cut.complete);
  EXPECT_EQ(cut.tokens, 5);
}

TEST(OutputConstraint, BeginsWhereTheThinkingEnds) {
  const auto grammar = compiled(schema_constraint(R"({"const":{"id":"the"}})"));
  for (const auto start : {ConstraintPlan::Start::kMayThink, ConstraintPlan::Start::kThinking}) {
    auto plan = std::make_shared<ConstraintPlan>();
    plan->grammar = grammar;
    plan->start = start;
    plan->thought_open = kOpenThought;
    plan->thought_close = kCloseThought;
    OutputConstraint constraint(plan, 400, {kEndToken});
    std::vector<std::uint32_t> words;
    ASSERT_TRUE(constraint.allowed(100, false, words).ok());
    const bool thinking = start == ConstraintPlan::Start::kThinking;
    EXPECT_EQ(is_set(words, kOpenThought), !thinking);
    EXPECT_EQ(is_set(words, 'x'), thinking);
    EXPECT_TRUE(is_set(words, '{'));
    EXPECT_FALSE(is_set(words, kEndToken));
    if (!thinking) {
      ASSERT_TRUE(constraint.accept(kOpenThought).ok());
    }
    ASSERT_TRUE(constraint.allowed(100, false, words).ok());
    EXPECT_TRUE(is_set(words, 'x') && is_set(words, kCloseThought));
    EXPECT_FALSE(is_set(words, kEndToken) || is_set(words, kOpenCall));
    ASSERT_TRUE(constraint.accept('x').ok());
    // Little is left: the thought must end now.
    ASSERT_TRUE(constraint.allowed(8, false, words).ok());
    EXPECT_FALSE(is_set(words, 'x'));
    EXPECT_TRUE(is_set(words, kCloseThought));
    ASSERT_TRUE(constraint.accept(kCloseThought).ok());
    ASSERT_TRUE(constraint.allowed(50, false, words).ok());
    EXPECT_FALSE(is_set(words, 'x') || is_set(words, kOpenThought));
    EXPECT_TRUE(is_set(words, '{'));
  }
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    EXPECT_TRUE(run_at_random(grammar, 40, seed, ConstraintPlan::Start::kMayThink).complete);
    EXPECT_TRUE(run_at_random(grammar, 40, seed, ConstraintPlan::Start::kThinking).complete);
  }
}

TEST(OutputConstraint, EndTokensComeInAcceptingStatesOnly) {
  const auto grammar = compiled(text_constraint(Constraint::Kind::kRegex, "a{2,}"));
  auto plan = std::make_shared<ConstraintPlan>();
  plan->grammar = grammar;
  OutputConstraint constraint(plan, 320, {kEndToken, 'a'});  // 'a' as one of stop_token_ids
  std::vector<std::uint32_t> words;
  ASSERT_TRUE(constraint.allowed(100, false, words).ok());
  EXPECT_FALSE(is_set(words, 'a'));  // a token that ends the output never comes as text
  OutputConstraint plain(plan, 320, {kEndToken});
  ASSERT_TRUE(plain.allowed(100, false, words).ok());
  EXPECT_FALSE(is_set(words, kEndToken));
  ASSERT_TRUE(plain.accept('a').ok());
  ASSERT_TRUE(plain.accept('a').ok());
  ASSERT_TRUE(plain.allowed(100, false, words).ok());
  EXPECT_TRUE(is_set(words, kEndToken) && is_set(words, 'a'));
  // min_tokens is not reached, but there is more to say.
  ASSERT_TRUE(plain.allowed(100, true, words).ok());
  EXPECT_FALSE(is_set(words, kEndToken));
  EXPECT_FALSE(plain.accept('b').ok());
}

TEST(GrammarCache, KeepsABoundedNumberAndTellsConstraintsApart) {
  GrammarCache cache(small_vocabulary(), kCallSyntax);
  const auto first = cache.get(schema_constraint(R"({"const":1})"), nullptr);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*cache.get(schema_constraint(R"({"const":1})"), nullptr), *first);
  EXPECT_NE(*cache.get(schema_constraint(R"({"const":2})"), nullptr), *first);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(cache
                    .get(text_constraint(Constraint::Kind::kRegex, "a{" + std::to_string(i) + "}b"),
                         nullptr)
                    .ok());
  }
  EXPECT_LE(cache.num_entries(), GrammarCache::kMaxEntries);
}

}  // namespace
}  // namespace flotilla::grammar
