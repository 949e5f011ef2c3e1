#include "flotilla/grammar/regex.h"

#include "flotilla/grammar/testing.h"

namespace flotilla::grammar {
namespace {

struct Case {
  const char* source;
  std::vector<const char*> good, bad;
};

TEST(Regex, MatchesTheWholeText) {
  const std::vector<Case> cases = {
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"a|bc|", {"a", "bc", ""}, {"abc"}},
      {"^a$", {"a"}, {"aa"}},
      {"(?:ab)*c+d?", {"c", "ababcc", "cd"}, {"abab", "cdd"}},
      {"a{3}", {"aaa"}, {"aa", "aaaa"}},
      {"a{2,}", {"aa", "aaaaaa"}, {"a"}},
      {"a{0}b", {"b"}, {"ab"}},
      {"a{1,3}?", {"a", "aaa"}, {"aaaa"}},
      {"[a-c]x[^a-c]", {"axd", "cxä", "bx\n"}, {"dxd", "axa"}},
      {"[]", {}, {"", "a"}},
      {"[-a][b-]", {"-b", "a-"}, {"ab-"}},
      {"[\\d\\-x]+", {"1-x"}, {"y"}},
      {"\\x41\\u00e4\\u{1F600}\\ud83d\\ude00", {"Aä😀😀"}, {"Aä😀"}},
      {"..", {"ab", "ä€"}, {"a\n", "a"}},
      {"\\.\\/\\-\\*", {"./-*"}, {"a/-*"}},
      {"(?<year>\\d{4})-(\\d\\d)", {"2024-12"}, {"24-12"}},
      {"[ä-ü]", {"ö", "ä"}, {"z", "ý"}},
      {"[\xe2\x82\xac-\xf0\x9f\x98\x80]", {"€", "😀", "\xef\xbf\xbd"}, {"a", "\xed\xa0\x80"}},
  };
  for (const Case& c : cases) {
    const auto dfa = regex_to_dfa(c.source, RegexMode::kWhole);
    ASSERT_TRUE(dfa.ok()) << c.source << dfa.error().message;
    for (const char* text : c.good) EXPECT_TRUE(dfa->matches(text)) << c.source << "  " << text;
    for (const char* text : c.bad) EXPECT_FALSE(dfa->matches(text)) << c.source << "  " << text;
  }
  EXPECT_TRUE(regex_to_dfa("\\w\\W\\s\\S", RegexMode::kWhole)->matches("a \tb"));
}

TEST(Regex, SearchFindsMatchesInside) {
  const auto plain = regex_to_dfa("b+", RegexMode::kSearch);
  EXPECT_TRUE(plain->matches("abc") && plain->matches("b") && plain->matches("ä\nb"));
  EXPECT_FALSE(plain->matches("ac"));
  const auto mixed = regex_to_dfa("^a|b$|^c$", RegexMode::kSearch);
  EXPECT_TRUE(mixed->matches("ax") && mixed->matches("xb") && mixed->matches("c"));
  EXPECT_FALSE(mixed->matches("xa") || mixed->matches("bx") || mixed->matches("cx"));
}

TEST(Regex, WhatNoAutomatonCanDoIsRefusedByName) {
  for (const auto& [pattern, word] : {std::pair{"(?=a)", "look-ahead"},
                                      {"(?!a)", "look-ahead"},
                                      {"(?<=a)b", "look-behind"},
                                      {"(?<!a)b", "look-behind"},
                                      {"(a)\\1", "back references"},
                                      {"\\k<x>", "back references"},
                                      {"\\bword", "word boundaries"},
                                      {"\\p{L}", "Unicode properties"},
                                      {"(?i)a", "group"},
                                      {"a(^b)", "^ inside"},
                                      {"(a$)b", "$ inside"},
                                      {"a^b", "start"},
                                      {"a$b", "end"},
                                      {"(a", "without its )"},
                                      {"a)", "without its ("},
                                      {"[a", "without its ]"},
                                      {"*a", "nothing to repeat"},
                                      {"a**", "nothing to repeat"},
                                      {"a{2,1}", "wrong order"},
                                      {"a{9999}", "limit"},
                                      {"[z-a]", "wrong order"},
                                      {"\\q", "unknown escape"},
                                      {"\\ud83d", "surrogate"},
                                      {"\xff", "UTF-8"},
                                      {"\\", "backslash"}}) {
    const auto result = regex_to_dfa(pattern, RegexMode::kWhole);
    ASSERT_FALSE(result.ok()) << pattern;
    EXPECT_NE(result.error().message.find(word), std::string::npos)
        << pattern << ": " << result.error().message;
  }
  EXPECT_FALSE(regex_to_dfa(std::string(20'000, 'a'), RegexMode::kWhole).ok());
  EXPECT_FALSE(
      regex_to_dfa(std::string(5'000, '(') + std::string(5'000, ')'), RegexMode::kWhole).ok());
}

TEST(Ebnf, ReadsItsNotation) {
  const std::vector<Case> cases = {
      {"root ::= \"a\" | 'b'  # comment\n// another\n", {"a", "b"}, {"", "ab"}},
      {"root ::= x x?\nx ::= [0-9]{2,3}", {"12", "123456"}, {"1", "1234567"}},
      {"root ::= (\"a\" | \"b\")* \"c\"", {"c", "abac"}, {"ab"}},
      {"root ::= \"\\n\\x41\\u00e4\\\"\"", {"\nAä\""}, {}},
      {"root ::= list\nlist ::= item (\",\" list)?\nitem ::= [a-z]+", {"a", "a,bc,d"}, {"a,", ""}},
      {"root ::= \"(\" root? \")\"", {"()", "((()))"}, {"(", "())"}},
      {"root ::= a\na ::=\n  \"x\"\n  | \"y\" a", {"x", "yyx"}, {"y"}},
      {"root ::= . .", {"aä"}, {"a"}},
      {"root ::= ws-1 \"x\"\nws-1 ::= [ \\t]{0,2}", {"x", " \tx"}, {"   x"}},
  };
  for (const Case& c : cases) {
    const auto grammar = compiled(text_constraint(Constraint::Kind::kGrammar, c.source));
    ASSERT_TRUE(grammar) << c.source;
    for (const char* text : c.good) EXPECT_TRUE(accepts(grammar, text)) << c.source << "  " << text;
    for (const char* text : c.bad) EXPECT_FALSE(accepts(grammar, text)) << c.source << "  " << text;
  }
}

TEST(Ebnf, ErrorsNameTheLineAndTheThing) {
  for (const auto& [source, words] :
       {std::pair{"start ::= \"a\"", "no rule 'root'"},
        {"root ::= missing", "'missing' in line 1"},
        {"root ::= \"a\"\nroot ::= \"b\"", "twice in line 2"},
        {"root ::= \"a", "literal without its end in line 1"},
        {"root ::= (\"a\"", "without its )"},
        {"root ::= \"a\" )", "unexpected ')'"},
        {"root ::= root \"a\" | \"b\"", "left-recursive"},
        {"root ::= x \"a\" | \"c\"\nx ::= \"b\"? root", "left-recursive"},
        {"root ::= root", "no output at all"},
        {"\"a\"", "expected 'name ::='"},
        {"root ::= \"a\" ; ", "unexpected ';'"},
        {"root ::= \"a\"{3,1}", "malformed {}"},
        {"root ::= [z-a]", "wrong order"}}) {
    const auto result = compile_small(text_constraint(Constraint::Kind::kGrammar, source));
    ASSERT_FALSE(result.ok()) << source;
    EXPECT_NE(result.error().message.find(words), std::string::npos)
        << source << ": " << result.error().message;
    EXPECT_EQ(result.error().param, "text");
  }
  // Copies of copies of copies.
  std::string bomb = "root ::= r20\nr0 ::= \"a\"\n";
  for (int i = 1; i <= 20; ++i) {
    const std::string below = "r" + std::to_string(i - 1) + " ";
    bomb += "r" + std::to_string(i) + " ::= " + below + below + below + below + "\n";
  }
  const auto result = compile_small(text_constraint(Constraint::Kind::kGrammar, bomb));
  EXPECT_TRUE(result.ok()) << result.error().message;
}

}  // namespace
}  // namespace flotilla::grammar
