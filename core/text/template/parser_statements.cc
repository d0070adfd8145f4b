// The statement half of Parser.
#include <algorithm>

#include "core/text/template/parser.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {

bool Parser::TakeName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Advance();
  return true;
}

bool Parser::TakeOperator(std::string_view op) {
  if (!current().IsOperator(op)) return false;
  Advance();
  return true;
}

absl::Status Parser::Error(std::string_view what) const {
  return absl::InvalidArgumentError(
      FormattedString("line %d: %s", current().line, what));
}

absl::Status Parser::Unexpected(std::string_view expected) const {
  std::string got;
  switch (current().type) {
    case TokenType::kEnd:
      got = "the end of the template";
      break;
    case TokenType::kVariableEnd:
    case TokenType::kBlockEnd:
      got = "the end of the tag";
      break;
    default:
      got = FormattedString("'%s'", current().text.substr(0, 40));
  }
  return Error(FormattedString("expected %s, got %s", expected, got));
}

absl::Status Parser::ExpectOperator(std::string_view op) {
  if (TakeOperator(op)) return absl::OkStatus();
  return Unexpected(FormattedString("'%s'", op));
}

absl::Status Parser::ExpectName(std::string_view name) {
  if (TakeName(name)) return absl::OkStatus();
  return Unexpected(FormattedString("'%s'", name));
}

absl::Status Parser::Expect(TokenType type, std::string_view what) {
  if (current().type != type) return Unexpected(what);
  Advance();
  return absl::OkStatus();
}

std::unique_ptr<Expr> Parser::NewExpr(Expr::Kind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = current().line;
  return expr;
}

std::unique_ptr<Node> Parser::NewNode(Node::Kind kind) const {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

absl::StatusOr<Body> Parser::Parse() { return ParseBody({}); }

// Up to a tag named in `ends`, whose name is then the current token.
absl::StatusOr<Body> Parser::ParseBody(const Ends& ends) {
  const Nested nested(*this);
  INLAY_RETURN_IF_ERROR(nested.Check());
  Body body;
  while (current().type != TokenType::kEnd) {
    std::unique_ptr<Node> node;
    if (current().type == TokenType::kText) {
      node = NewNode(Node::Kind::kText);
      node->text = std::move(tokens_[pos_].text);
      Advance();
    } else if (current().type == TokenType::kVariableBegin) {
      node = NewNode(Node::Kind::kPrint);
      Advance();
      INLAY_ASSIGN_OR_RETURN(ExprPtr expr, ParseTupleOrExpr(true));
      node->exprs.push_back(std::move(expr));
      INLAY_RETURN_IF_ERROR(Expect(TokenType::kVariableEnd, "'}}'"));
    } else {
      INLAY_RETURN_IF_ERROR(Expect(TokenType::kBlockBegin, "a tag"));
      if (current().type != TokenType::kName) return Unexpected("a tag name");
      if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) {
        return body;
      }
      INLAY_ASSIGN_OR_RETURN(node, ParseStatement());
      INLAY_RETURN_IF_ERROR(Expect(TokenType::kBlockEnd, "'%}'"));
    }
    body.push_back(std::move(node));
  }
  if (ends.empty()) return body;
  std::string wanted;
  for (const std::string_view end : ends) {
    wanted +=
        FormattedString("%s{%% %s %%}", wanted.empty() ? "" : " or ", end);
  }
  return Unexpected(wanted);
}

// From the end of a tag to its end tag.
absl::StatusOr<Body> Parser::ParseBlock(const Ends& ends) {
  TakeOperator(":");
  INLAY_RETURN_IF_ERROR(Expect(TokenType::kBlockEnd, "'%}'"));
  return ParseBody(ends);
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseStatement() {
  static constexpr std::pair<std::string_view, StatementParser> kStatements[] =
      {{"if", &Parser::ParseIf},
       {"for", &Parser::ParseFor},
       {"set", &Parser::ParseSet},
       {"macro", &Parser::ParseMacro},
       {"call", &Parser::ParseCall},
       {"filter", &Parser::ParseFilterBlock},
       {"with", &Parser::ParseWith},
       {"generation", &Parser::ParseGeneration},
       {"print", &Parser::ParsePrint},
       {"break", &Parser::ParseBreak},
       {"continue", &Parser::ParseContinue}};
  for (const auto& [name, parse] : kStatements) {
    if (current().text == name) return (this->*parse)();
  }
  static constexpr std::string_view kUnsupported[] = {
      "include", "import", "from", "extends", "block", "autoescape"};
  for (const std::string_view name : kUnsupported) {
    if (current().text == name) {
      return absl::UnimplementedError(FormattedString(
          "line %d: {%% %s %%} is not supported: a chat template stands alone",
          current().line, name));
    }
  }
  return Error(
      FormattedString("unknown tag '%s'", current().text.substr(0, 40)));
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseIf() {
  auto node = NewNode(Node::Kind::kIf);
  while (true) {
    Advance();
    INLAY_ASSIGN_OR_RETURN(ExprPtr test, ParseTupleOrExpr(false));
    node->exprs.push_back(std::move(test));
    INLAY_ASSIGN_OR_RETURN(Body body, ParseBlock({"elif", "else", "endif"}));
    node->bodies.push_back(std::move(body));
    if (!current().IsName("elif")) break;
  }
  if (TakeName("else")) {
    INLAY_ASSIGN_OR_RETURN(Body body, ParseBlock({"endif"}));
    node->bodies.push_back(std::move(body));
  }
  Advance();
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseFor() {
  auto node = NewNode(Node::Kind::kFor);
  Advance();
  INLAY_ASSIGN_OR_RETURN(node->target, ParseTarget(false));
  INLAY_RETURN_IF_ERROR(ExpectName("in"));
  INLAY_ASSIGN_OR_RETURN(ExprPtr items, ParseTupleOrExpr(false));
  node->exprs.push_back(std::move(items));
  if (TakeName("if")) {
    INLAY_ASSIGN_OR_RETURN(ExprPtr test, ParseExpr());
    node->exprs.push_back(std::move(test));
  }
  if (current().IsName("recursive")) {
    return absl::UnimplementedError(FormattedString(
        "line %d: recursive loops are not supported", current().line));
  }
  ++loops_;
  INLAY_ASSIGN_OR_RETURN(Body body, ParseBlock({"endfor", "else"}));
  --loops_;
  node->bodies.push_back(std::move(body));
  if (TakeName("else")) {
    INLAY_ASSIGN_OR_RETURN(Body other, ParseBlock({"endfor"}));
    node->bodies.push_back(std::move(other));
  }
  Advance();
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseSet() {
  auto node = NewNode(Node::Kind::kSet);
  Advance();
  INLAY_ASSIGN_OR_RETURN(node->target, ParseTarget(true));
  if (TakeOperator("=")) {
    INLAY_ASSIGN_OR_RETURN(ExprPtr value, ParseTupleOrExpr(true));
    node->exprs.push_back(std::move(value));
    return node;
  }
  node->kind = Node::Kind::kSetBlock;
  while (TakeOperator("|")) {
    INLAY_ASSIGN_OR_RETURN(Postfix filter, ParseFilter());
    node->filters.push_back(std::move(filter));
  }
  INLAY_ASSIGN_OR_RETURN(Body body, ParseBlock({"endset"}));
  node->bodies.push_back(std::move(body));
  Advance();
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseFilterBlock() {
  auto node = NewNode(Node::Kind::kFilter);
  Advance();
  do {
    INLAY_ASSIGN_OR_RETURN(Postfix filter, ParseFilter());
    node->filters.push_back(std::move(filter));
  } while (TakeOperator("|"));
  INLAY_ASSIGN_OR_RETURN(Body body, ParseBlock({"endfilter"}));
  node->bodies.push_back(std::move(body));
  Advance();
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseWith() {
  auto node = NewNode(Node::Kind::kWith);
  Advance();
  while (current().type != TokenType::kBlockEnd) {
    if (!node->exprs.empty()) INLAY_RETURN_IF_ERROR(ExpectOperator(","));
    INLAY_ASSIGN_OR_RETURN(Target target, ParseTarget(false));
    INLAY_RETURN_IF_ERROR(ExpectOperator("="));
    INLAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpr());
    node->targets.push_back(std::move(target));
    node->exprs.push_back(std::move(value));
  }
  INLAY_ASSIGN_OR_RETURN(Body body, ParseBlock({"endwith"}));
  node->bodies.push_back(std::move(body));
  Advance();
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParsePrint() {
  auto node = NewNode(Node::Kind::kPrint);
  Advance();
  while (current().type != TokenType::kBlockEnd) {
    if (!node->exprs.empty()) INLAY_RETURN_IF_ERROR(ExpectOperator(","));
    INLAY_ASSIGN_OR_RETURN(ExprPtr expr, ParseExpr());
    node->exprs.push_back(std::move(expr));
  }
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::LoopControl(Node::Kind kind) {
  if (loops_ == 0) {
    return Error(FormattedString("'%s' stands outside a loop", current().text));
  }
  auto node = NewNode(kind);
  Advance();
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseBreak() {
  return LoopControl(Node::Kind::kBreak);
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseContinue() {
  return LoopControl(Node::Kind::kContinue);
}

}  // namespace inlay::tmpl
