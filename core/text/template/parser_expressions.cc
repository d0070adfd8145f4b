// The expression half of Parser.
#include "core/text/template/parser.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

struct ChainOp {
  std::string_view text;
  BinaryOp op;
};

// By level of ParseChain.
constexpr ChainOp kSums[] = {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}};
constexpr ChainOp kConcats[] = {{"~", BinaryOp::kConcat}};
constexpr ChainOp kProducts[] = {{"*", BinaryOp::kMul},
                                 {"/", BinaryOp::kDiv},
                                 {"//", BinaryOp::kFloorDiv},
                                 {"%", BinaryOp::kMod}};
constexpr ChainOp kPowers[] = {{"**", BinaryOp::kPow}};

struct Level {
  const ChainOp* begin;
  const ChainOp* end;
};
constexpr Level kLevels[] = {{std::begin(kSums), std::end(kSums)},
                             {std::begin(kConcats), std::end(kConcats)},
                             {std::begin(kProducts), std::end(kProducts)},
                             {std::begin(kPowers), std::end(kPowers)}};
constexpr int kNumLevels = 4;

}  // namespace

absl::Status Parser::Nested::Check() const {
  if (parser_.depth_ <= parser_.limits_.max_depth) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      FormattedString("line %d: nested deeper than the %d levels allowed",
                      parser_.current().line, parser_.limits_.max_depth));
}

bool Parser::AtTupleEnd() const {
  return current().type == TokenType::kVariableEnd ||
         current().type == TokenType::kBlockEnd || current().IsOperator(")");
}

absl::StatusOr<ExprPtr> Parser::ParseTupleOrExpr(bool conditional,
                                                 bool parenthesized) {
  ExprPtr tuple = NewExpr(Expr::Kind::kTuple);
  bool is_tuple = parenthesized && current().IsOperator(")");
  while (!AtTupleEnd()) {
    INLAY_ASSIGN_OR_RETURN(ExprPtr item, ParseExpr(conditional));
    tuple->items.push_back(std::move(item));
    if (!TakeOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (tuple->items.empty()) return Unexpected("an expression");
  return std::move(tuple->items[0]);
}

absl::StatusOr<ExprPtr> Parser::ParseExpr(bool conditional) {
  const Nested nested(*this);
  INLAY_RETURN_IF_ERROR(nested.Check());
  return conditional ? ParseConditional() : ParseOr();
}

absl::StatusOr<ExprPtr> Parser::ParseConditional() {
  INLAY_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  // Each further "if" wraps what stands before it.
  for (int wrapped = 1; TakeName("if"); ++wrapped) {
    if (depth_ + wrapped > limits_.max_depth) {
      return absl::ResourceExhaustedError(FormattedString(
          "line %d: more than the %d conditions allowed in a row",
          current().line, limits_.max_depth));
    }
    ExprPtr condition = NewExpr(Expr::Kind::kConditional);
    INLAY_ASSIGN_OR_RETURN(ExprPtr test, ParseOr());
    condition->items.push_back(std::move(test));
    condition->items.push_back(std::move(value));
    if (TakeName("else")) {
      INLAY_ASSIGN_OR_RETURN(ExprPtr other, ParseExpr());
      condition->items.push_back(std::move(other));
    }
    value = std::move(condition);
  }
  return value;
}

absl::StatusOr<ExprPtr> Parser::ParseOr() {
  INLAY_ASSIGN_OR_RETURN(ExprPtr first, ParseAnd());
  if (!current().IsName("or")) return first;
  ExprPtr expr = NewExpr(Expr::Kind::kOr);
  expr->items.push_back(std::move(first));
  while (TakeName("or")) {
    INLAY_ASSIGN_OR_RETURN(ExprPtr next, ParseAnd());
    expr->items.push_back(std::move(next));
  }
  return expr;
}

absl::StatusOr<ExprPtr> Parser::ParseAnd() {
  INLAY_ASSIGN_OR_RETURN(ExprPtr first, ParseNot());
  if (!current().IsName("and")) return first;
  ExprPtr expr = NewExpr(Expr::Kind::kAnd);
  expr->items.push_back(std::move(first));
  while (TakeName("and")) {
    INLAY_ASSIGN_OR_RETURN(ExprPtr next, ParseNot());
    expr->items.push_back(std::move(next));
  }
  return expr;
}

absl::StatusOr<ExprPtr> Parser::ParseNot() {
  if (!current().IsName("not")) return ParseCompare();
  const Nested nested(*this);
  INLAY_RETURN_IF_ERROR(nested.Check());
  ExprPtr expr = NewExpr(Expr::Kind::kNot);
  Advance();
  INLAY_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  expr->items.push_back(std::move(operand));
  return expr;
}

bool Parser::TakeComparison(Expr::Comparison& out) {
  using C = Expr::Comparison;
  static constexpr std::pair<std::string_view, C> kOperators[] = {
      {"==", C::kEqual},     {"!=", C::kNotEqual}, {"<", C::kLess},
      {"<=", C::kLessEqual}, {">", C::kGreater},   {">=", C::kGreaterEqual}};
  for (const auto& [text, comparison] : kOperators) {
    if (TakeOperator(text)) {
      out = comparison;
      return true;
    }
  }
  if (TakeName("in")) {
    out = C::kIn;
    return true;
  }
  if (current().IsName("not") && ahead().IsName("in")) {
    Advance();
    Advance();
    out = C::kNotIn;
    return true;
  }
  return false;
}

absl::StatusOr<ExprPtr> Parser::ParseCompare() {
  INLAY_ASSIGN_OR_RETURN(ExprPtr first, ParseChain(0));
  Expr::Comparison comparison;
  if (!TakeComparison(comparison)) return first;
  ExprPtr expr = NewExpr(Expr::Kind::kCompare);
  expr->items.push_back(std::move(first));
  do {
    expr->comparisons.push_back(comparison);
    INLAY_ASSIGN_OR_RETURN(ExprPtr next, ParseChain(0));
    expr->items.push_back(std::move(next));
  } while (TakeComparison(comparison));
  return expr;
}

absl::StatusOr<ExprPtr> Parser::ParseChain(int level) {
  if (level == kNumLevels) return ParseUnary(true);
  INLAY_ASSIGN_OR_RETURN(ExprPtr first, ParseChain(level + 1));
  ExprPtr chain;
  while (true) {
    const ChainOp* op = kLevels[level].begin;
    while (op != kLevels[level].end && !current().IsOperator(op->text)) ++op;
    if (op == kLevels[level].end) break;
    if (chain == nullptr) {
      chain = NewExpr(Expr::Kind::kChain);
      chain->items.push_back(std::move(first));
    }
    Advance();
    INLAY_ASSIGN_OR_RETURN(ExprPtr next, ParseChain(level + 1));
    chain->ops.push_back(op->op);
    chain->items.push_back(std::move(next));
  }
  return chain == nullptr ? std::move(first) : std::move(chain);
}

absl::StatusOr<ExprPtr> Parser::ParseUnary(bool with_filters) {
  ExprPtr expr;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    const Nested nested(*this);
    INLAY_RETURN_IF_ERROR(nested.Check());
    expr = NewExpr(current().IsOperator("-") ? Expr::Kind::kNegate
                                             : Expr::Kind::kPlus);
    Advance();
    INLAY_ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(false));
    expr->items.push_back(std::move(operand));
  } else {
    INLAY_ASSIGN_OR_RETURN(expr, ParsePrimary());
  }
  INLAY_RETURN_IF_ERROR(ParsePostfixes(expr, false));
  if (with_filters) INLAY_RETURN_IF_ERROR(ParsePostfixes(expr, true));
  return expr;
}

absl::StatusOr<ExprPtr> Parser::ParsePrimary() {
  ExprPtr expr = NewExpr(Expr::Kind::kConstant);
  const Token& token = current();
  switch (token.type) {
    case TokenType::kName:
      if (token.text == "true" || token.text == "True") {
        expr->value = Value::Bool(true);
      } else if (token.text == "false" || token.text == "False") {
        expr->value = Value::Bool(false);
      } else if (token.text != "none" && token.text != "None") {
        expr->kind = Expr::Kind::kName;
        expr->value = Value::Constant(token.text);
        for (Signature* callable : callables_) {
          callable->uses_caller |= token.text == "caller";
          callable->uses_varargs |= token.text == "varargs";
          callable->uses_kwargs |= token.text == "kwargs";
        }
      }
      Advance();
      return expr;
    case TokenType::kString: {
      std::string text;
      while (current().type == TokenType::kString) {
        text += current().text;
        Advance();
      }
      expr->value = Value::Constant(std::move(text));
      return expr;
    }
    case TokenType::kInteger:
      expr->value = Value::OfInt(token.integer);
      Advance();
      return expr;
    case TokenType::kFloat:
      expr->value = Value::OfFloat(token.real);
      Advance();
      return expr;
    default:
      break;
  }
  if (TakeOperator("(")) {
    INLAY_ASSIGN_OR_RETURN(expr, ParseTupleOrExpr(true, true));
    INLAY_RETURN_IF_ERROR(ExpectOperator(")"));
    return expr;
  }
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  return Unexpected("an expression");
}

absl::StatusOr<ExprPtr> Parser::ParseList() {
  ExprPtr list = NewExpr(Expr::Kind::kList);
  Advance();
  while (!current().IsOperator("]")) {
    INLAY_ASSIGN_OR_RETURN(ExprPtr item, ParseExpr());
    list->items.push_back(std::move(item));
    if (!TakeOperator(",")) break;
  }
  INLAY_RETURN_IF_ERROR(ExpectOperator("]"));
  return list;
}

absl::StatusOr<ExprPtr> Parser::ParseDict() {
  ExprPtr dict = NewExpr(Expr::Kind::kDict);
  Advance();
  while (!current().IsOperator("}")) {
    INLAY_ASSIGN_OR_RETURN(ExprPtr key, ParseExpr());
    INLAY_RETURN_IF_ERROR(ExpectOperator(":"));
    INLAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpr());
    dict->items.push_back(std::move(key));
    dict->items.push_back(std::move(value));
    if (!TakeOperator(",")) break;
  }
  INLAY_RETURN_IF_ERROR(ExpectOperator("}"));
  return dict;
}

}  // namespace inlay::tmpl
