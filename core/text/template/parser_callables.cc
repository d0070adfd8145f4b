// Macros, call blocks and assignment targets. Part of Parser.
#include "core/text/template/parser.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {

absl::Status Parser::ParseSignature(Signature& signature) {
  INLAY_RETURN_IF_ERROR(ExpectOperator("("));
  while (!current().IsOperator(")")) {
    INLAY_ASSIGN_OR_RETURN(std::string name, ParseNewName());
    signature.params.push_back(std::move(name));
    if (TakeOperator("=")) {
      INLAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpr());
      signature.defaults.push_back(std::move(value));
    } else if (!signature.defaults.empty()) {
      return Error("a parameter without a default follows one with a default");
    }
    if (!current().IsOperator(")")) INLAY_RETURN_IF_ERROR(ExpectOperator(","));
  }
  return ExpectOperator(")");
}

// A body that becomes a callable of its own: loops around it do not count, and
// the special names it mentions are noted.
absl::StatusOr<Body> Parser::ParseCallableBody(std::string_view end,
                                               Signature& signature) {
  const int outer_loops = loops_;
  loops_ = 0;
  callables_.push_back(&signature);
  absl::StatusOr<Body> body = ParseBlock({end});
  callables_.pop_back();
  loops_ = outer_loops;
  if (body.ok()) Advance();
  return body;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseMacro() {
  auto node = NewNode(Node::Kind::kMacro);
  Advance();
  INLAY_ASSIGN_OR_RETURN(node->text, ParseNewName());
  INLAY_RETURN_IF_ERROR(ParseSignature(node->signature));
  INLAY_ASSIGN_OR_RETURN(Body body,
                         ParseCallableBody("endmacro", node->signature));
  node->bodies.push_back(std::move(body));
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseCall() {
  auto node = NewNode(Node::Kind::kCallBlock);
  node->text = "caller";
  Advance();
  if (current().IsOperator("(")) {
    INLAY_RETURN_IF_ERROR(ParseSignature(node->signature));
  }
  INLAY_ASSIGN_OR_RETURN(ExprPtr call, ParseExpr());
  if (call->kind != Expr::Kind::kPostfix ||
      call->steps.back().kind != Postfix::Kind::kCall) {
    return Error("a call block needs a call, as in {% call name() %}");
  }
  node->exprs.push_back(std::move(call));
  INLAY_ASSIGN_OR_RETURN(Body body,
                         ParseCallableBody("endcall", node->signature));
  node->bodies.push_back(std::move(body));
  return node;
}

absl::StatusOr<std::unique_ptr<Node>> Parser::ParseGeneration() {
  auto node = NewNode(Node::Kind::kScope);
  Advance();
  INLAY_ASSIGN_OR_RETURN(Body body,
                         ParseCallableBody("endgeneration", node->signature));
  node->bodies.push_back(std::move(body));
  return node;
}

absl::StatusOr<std::string> Parser::ParseNewName() {
  if (current().type != TokenType::kName) return Unexpected("a name");
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  for (const std::string_view constant : kConstants) {
    if (current().text == constant) {
      return Error(FormattedString("cannot assign to '%s'", constant));
    }
  }
  std::string name = current().text;
  Advance();
  return name;
}

absl::StatusOr<Target> Parser::ParseTargetItem(bool allow_member) {
  const Nested nested(*this);
  INLAY_RETURN_IF_ERROR(nested.Check());
  if (TakeOperator("(")) {
    INLAY_ASSIGN_OR_RETURN(Target target, ParseTarget(false));
    INLAY_RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }
  Target target;
  INLAY_ASSIGN_OR_RETURN(target.name, ParseNewName());
  if (allow_member && TakeOperator(".")) {
    if (current().type != TokenType::kName) return Unexpected("a name");
    target.kind = Target::Kind::kMember;
    target.member = current().text;
    Advance();
  }
  return target;
}

absl::StatusOr<Target> Parser::ParseTarget(bool allow_member) {
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  bool is_tuple = false;
  while (!AtTupleEnd() && !current().IsName("in")) {
    INLAY_ASSIGN_OR_RETURN(Target item, ParseTargetItem(allow_member));
    tuple.items.push_back(std::move(item));
    if (!TakeOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (tuple.items.empty()) return Unexpected("a name to assign to");
  return std::move(tuple.items[0]);
}

}  // namespace inlay::tmpl
