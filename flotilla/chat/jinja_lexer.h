// Cuts a template's source into tokens, applying the white space rules that Hugging Face sets
// (trim_blocks, lstrip_blocks, no newline at the end).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace flotilla::chat {

enum class TokenKind {
  kData,           // literal text
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // text holds the decoded value
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  std::size_t line = 1;
  std::size_t column = 1;
};

// Throws TemplateError.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace flotilla::chat
