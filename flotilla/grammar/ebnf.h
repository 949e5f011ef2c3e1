// A small EBNF, in the spelling that llama.cpp and XGrammar users know:
//
//   root   ::= greeting (" " name)? "!"     # the answer is what `root` matches
//   greeting ::= "Hello" | "Good " ("morning" | "night")
//   name   ::= [A-Z] [a-z]{1,20}
//
// "..." and '...' with \n \t \r \" \' \\ \xHH \uHHHH; [...] and . as in regular expressions; ( ) |
// ? * + {m} {m,} {m,n}; names of letters, digits, _ and -; comments from # or // to the line's end.
// A rule goes on until the next `name ::=`. Rules may refer to themselves, but not at their
// beginning.
#pragma once

#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/grammar/automaton.h"

namespace flotilla::grammar {

inline constexpr std::size_t kMaxEbnfBytes = 65'536;

// Adds what the rule `root` matches between two states. Errors name the line.
Status emit_ebnf(AutomatonBuilder& builder, std::string_view source, StateId from, StateId to);

}  // namespace flotilla::grammar
