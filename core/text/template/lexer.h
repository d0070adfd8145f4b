// Splits a template into text and the tokens inside its tags, with Jinja's
// whitespace control as chat templates are rendered: trim_blocks and
// lstrip_blocks on. Source: the Jinja template designer documentation.
#ifndef INLAY_CORE_TEXT_TEMPLATE_LEXER_H_
#define INLAY_CORE_TEXT_TEMPLATE_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/text/template/limits.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

enum class TokenType : uint8_t {
  kText,           // literal output
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;  // of a text, name, operator, or unescaped string
  Int integer = 0;
  double real = 0;

  bool IsName(std::string_view name) const {
    return type == TokenType::kName && text == name;
  }
  bool IsOperator(std::string_view op) const {
    return type == TokenType::kOperator && text == op;
  }
};

// Ends with a kEnd token. INVALID_ARGUMENT ("line N: ...") for what is no
// template, RESOURCE_EXHAUSTED beyond the limits.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source,
                                            const TemplateLimits& limits);

// The text of a string literal's body, escapes resolved as in Python.
absl::StatusOr<std::string> Unescape(std::string_view body);

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_LEXER_H_
