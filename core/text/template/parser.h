// Recursive descent over the tokens, with Jinja's precedence. Recursion is
// capped by TemplateLimits::max_depth.
#ifndef INLAY_CORE_TEXT_TEMPLATE_PARSER_H_
#define INLAY_CORE_TEXT_TEMPLATE_PARSER_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/text/template/ast.h"
#include "core/text/template/lexer.h"
#include "core/text/template/limits.h"

namespace inlay::tmpl {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const TemplateLimits& limits)
      : tokens_(std::move(tokens)), limits_(limits) {}

  // INVALID_ARGUMENT for syntax errors, UNIMPLEMENTED for Jinja's statements
  // that chat templates have no use for, RESOURCE_EXHAUSTED for nesting; all
  // say "line N: ...".
  absl::StatusOr<Body> Parse();

 private:
  using Ends = std::vector<std::string_view>;
  using StatementParser = absl::StatusOr<std::unique_ptr<Node>> (Parser::*)();

  // parser_statements.cc
  absl::StatusOr<Body> ParseBody(const Ends& ends);
  absl::StatusOr<Body> ParseBlock(const Ends& ends);
  absl::StatusOr<std::unique_ptr<Node>> ParseStatement();
  absl::StatusOr<std::unique_ptr<Node>> ParseIf();
  absl::StatusOr<std::unique_ptr<Node>> ParseFor();
  absl::StatusOr<std::unique_ptr<Node>> ParseSet();
  absl::StatusOr<std::unique_ptr<Node>> ParseMacro();
  absl::StatusOr<std::unique_ptr<Node>> ParseCall();
  absl::StatusOr<std::unique_ptr<Node>> ParseFilterBlock();
  absl::StatusOr<std::unique_ptr<Node>> ParseWith();
  absl::StatusOr<std::unique_ptr<Node>> ParseGeneration();
  absl::StatusOr<std::unique_ptr<Node>> ParsePrint();
  absl::StatusOr<std::unique_ptr<Node>> ParseBreak();
  absl::StatusOr<std::unique_ptr<Node>> ParseContinue();
  absl::StatusOr<std::unique_ptr<Node>> LoopControl(Node::Kind kind);
  absl::Status ParseSignature(Signature& signature);
  absl::StatusOr<Body> ParseCallableBody(std::string_view end,
                                         Signature& signature);
  absl::StatusOr<Target> ParseTarget(bool allow_member);
  absl::StatusOr<Target> ParseTargetItem(bool allow_member);
  absl::StatusOr<std::string> ParseNewName();

  // parser_expressions.cc
  absl::StatusOr<ExprPtr> ParseTupleOrExpr(bool conditional,
                                           bool parenthesized = false);
  absl::StatusOr<ExprPtr> ParseExpr(bool conditional = true);
  absl::StatusOr<ExprPtr> ParseConditional();
  absl::StatusOr<ExprPtr> ParseOr();
  absl::StatusOr<ExprPtr> ParseAnd();
  absl::StatusOr<ExprPtr> ParseNot();
  absl::StatusOr<ExprPtr> ParseCompare();
  bool TakeComparison(Expr::Comparison& out);
  // The left-associative levels: 0 is + and -, 1 is ~, 2 is * / // %, 3 is **.
  absl::StatusOr<ExprPtr> ParseChain(int level);
  absl::StatusOr<ExprPtr> ParseUnary(bool with_filters);
  absl::StatusOr<ExprPtr> ParsePrimary();
  absl::StatusOr<ExprPtr> ParseList();
  absl::StatusOr<ExprPtr> ParseDict();
  absl::Status ParsePostfixes(ExprPtr& base, bool filters);
  absl::StatusOr<Postfix> ParseAttribute();
  absl::StatusOr<Postfix> ParseSubscript();
  absl::StatusOr<Postfix> ParseFilter();
  absl::StatusOr<Postfix> ParseTest();
  absl::Status ParseArguments(Arguments& args);
  absl::StatusOr<std::string> ParseDottedName();
  bool AtTupleEnd() const;

  const Token& current() const { return tokens_[pos_]; }
  const Token& ahead() const {
    return tokens_[pos_ + 1 < tokens_.size() ? pos_ + 1 : pos_];
  }
  void Advance() {
    if (pos_ + 1 < tokens_.size()) ++pos_;
  }
  bool TakeName(std::string_view name);
  bool TakeOperator(std::string_view op);
  absl::Status ExpectOperator(std::string_view op);
  absl::Status ExpectName(std::string_view name);
  absl::Status Expect(TokenType type, std::string_view what);
  absl::Status Error(std::string_view what) const;
  absl::Status Unexpected(std::string_view expected) const;
  std::unique_ptr<Expr> NewExpr(Expr::Kind kind) const;
  std::unique_ptr<Node> NewNode(Node::Kind kind) const;

  // Counts one level of nesting for its lifetime.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) { ++parser_.depth_; }
    ~Nested() { --parser_.depth_; }
    absl::Status Check() const;

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  const TemplateLimits limits_;
  size_t pos_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // around the current statement, within its macro
  std::vector<Signature*> callables_;
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_PARSER_H_
