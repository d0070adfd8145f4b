// What may follow a primary expression: attributes, subscripts, calls, filters
// and tests. Part of Parser.
#include "absl/strings/str_cat.h"
#include "core/text/template/parser.h"
#include "memory/status.h"

namespace inlay::tmpl {

absl::Status Parser::ParsePostfixes(ExprPtr& base, bool filters) {
  std::vector<Postfix> steps;
  while (true) {
    absl::StatusOr<Postfix> step;
    if (!filters && current().IsOperator(".")) {
      step = ParseAttribute();
    } else if (!filters && current().IsOperator("[")) {
      step = ParseSubscript();
    } else if (current().IsOperator("(")) {
      Postfix call;
      call.kind = Postfix::Kind::kCall;
      call.line = current().line;
      INLAY_RETURN_IF_ERROR(ParseArguments(call.args));
      step = std::move(call);
    } else if (filters && TakeOperator("|")) {
      step = ParseFilter();
    } else if (filters && current().IsName("is")) {
      step = ParseTest();
    } else {
      break;
    }
    if (!step.ok()) return step.status();
    steps.push_back(*std::move(step));
  }
  if (steps.empty()) return absl::OkStatus();
  if (base->kind == Expr::Kind::kPostfix) {
    for (Postfix& step : steps) base->steps.push_back(std::move(step));
    return absl::OkStatus();
  }
  ExprPtr expr = NewExpr(Expr::Kind::kPostfix);
  expr->line = base->line;
  expr->items.push_back(std::move(base));
  expr->steps = std::move(steps);
  base = std::move(expr);
  return absl::OkStatus();
}

absl::StatusOr<Postfix> Parser::ParseAttribute() {
  Postfix step;
  step.line = current().line;
  Advance();
  if (current().type == TokenType::kName) {
    step.kind = Postfix::Kind::kAttribute;
    step.name = Value::Constant(current().text);
  } else if (current().type == TokenType::kInteger) {
    step.kind = Postfix::Kind::kIndex;
    step.index = NewExpr(Expr::Kind::kConstant);
    step.index->value = Value::OfInt(current().integer);
  } else {
    return Unexpected("a name or a number");
  }
  Advance();
  return step;
}

absl::StatusOr<Postfix> Parser::ParseSubscript() {
  Postfix step;
  step.kind = Postfix::Kind::kIndex;
  step.line = current().line;
  Advance();
  if (!current().IsOperator(":")) {
    INLAY_ASSIGN_OR_RETURN(step.index, ParseExpr());
    if (current().IsOperator(",")) {
      // x[a, b] indexes with a tuple.
      ExprPtr tuple = NewExpr(Expr::Kind::kTuple);
      tuple->items.push_back(std::move(step.index));
      while (TakeOperator(",")) {
        INLAY_ASSIGN_OR_RETURN(ExprPtr item, ParseExpr());
        tuple->items.push_back(std::move(item));
      }
      step.index = std::move(tuple);
    }
  }
  if (TakeOperator(":")) {
    step.kind = Postfix::Kind::kSlice;
    if (!current().IsOperator(":") && !current().IsOperator("]")) {
      INLAY_ASSIGN_OR_RETURN(step.stop, ParseExpr());
    }
    if (TakeOperator(":") && !current().IsOperator("]")) {
      INLAY_ASSIGN_OR_RETURN(step.step, ParseExpr());
    }
  }
  INLAY_RETURN_IF_ERROR(ExpectOperator("]"));
  return step;
}

absl::StatusOr<std::string> Parser::ParseDottedName() {
  if (current().type != TokenType::kName) return Unexpected("a name");
  std::string name = current().text;
  Advance();
  while (TakeOperator(".")) {
    if (current().type != TokenType::kName) return Unexpected("a name");
    absl::StrAppend(&name, ".", current().text);
    Advance();
  }
  return name;
}

absl::StatusOr<Postfix> Parser::ParseFilter() {
  Postfix step;
  step.kind = Postfix::Kind::kFilter;
  step.line = current().line;
  INLAY_ASSIGN_OR_RETURN(std::string name, ParseDottedName());
  step.name = Value::Constant(std::move(name));
  if (current().IsOperator("(")) {
    INLAY_RETURN_IF_ERROR(ParseArguments(step.args));
  }
  return step;
}

absl::StatusOr<Postfix> Parser::ParseTest() {
  Postfix step;
  step.kind = Postfix::Kind::kTest;
  step.line = current().line;
  Advance();
  step.negated = TakeName("not");
  INLAY_ASSIGN_OR_RETURN(std::string name, ParseDottedName());
  step.name = Value::Constant(std::move(name));
  const Token& next = current();
  if (next.IsOperator("(")) {
    INLAY_RETURN_IF_ERROR(ParseArguments(step.args));
    return step;
  }
  // One argument may follow without parentheses: "x is divisibleby 3".
  const bool starts_argument =
      next.type == TokenType::kString || next.type == TokenType::kInteger ||
      next.type == TokenType::kFloat || next.IsOperator("[") ||
      next.IsOperator("{") ||
      (next.type == TokenType::kName && next.text != "else" &&
       next.text != "or" && next.text != "and");
  if (!starts_argument) return step;
  if (next.IsName("is")) return Error("tests cannot be chained with 'is'");
  const Nested nested(*this);
  INLAY_RETURN_IF_ERROR(nested.Check());
  INLAY_ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());
  INLAY_RETURN_IF_ERROR(ParsePostfixes(argument, false));
  step.args.positional.push_back(std::move(argument));
  return step;
}

absl::Status Parser::ParseArguments(Arguments& args) {
  INLAY_RETURN_IF_ERROR(ExpectOperator("("));
  while (!current().IsOperator(")")) {
    if (current().IsOperator("*") && !args.star && !args.double_star) {
      Advance();
      INLAY_ASSIGN_OR_RETURN(args.star, ParseExpr());
    } else if (current().IsOperator("**") && !args.double_star) {
      Advance();
      INLAY_ASSIGN_OR_RETURN(args.double_star, ParseExpr());
    } else if (current().type == TokenType::kName && ahead().IsOperator("=") &&
               !args.double_star) {
      std::string name = current().text;
      Advance();
      Advance();
      INLAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpr());
      for (const auto& [other, unused] : args.named) {
        if (other == name) return Error("argument '" + name + "' given twice");
      }
      args.named.emplace_back(std::move(name), std::move(value));
    } else if (!args.star && !args.double_star && args.named.empty()) {
      INLAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpr());
      args.positional.push_back(std::move(value));
    } else {
      return Error("positional arguments must stand before named ones");
    }
    if (!TakeOperator(",")) break;
  }
  return ExpectOperator(")");
}

}  // namespace inlay::tmpl
