// Expressions other than postfix chains. Part of Evaluator.
#include "core/text/template/evaluator.h"
#include "core/text/template/value_ops.h"
#include "memory/status.h"

namespace inlay::tmpl {

absl::StatusOr<Value> Evaluator::Eval(const Expr& expr, const ScopePtr& scope) {
  // Leaves first: they need neither a level of depth nor a step.
  if (expr.kind == Expr::Kind::kConstant) return expr.value;
  if (expr.kind == Expr::Kind::kName) return Resolve(expr.value, scope);
  const Nested nested(*this);
  INLAY_RETURN_IF_ERROR(nested.Check());
  INLAY_RETURN_IF_ERROR(env_.budget().Spend(1));
  switch (expr.kind) {
    case Expr::Kind::kList:
    case Expr::Kind::kTuple:
      return EvalItems(expr, scope);
    case Expr::Kind::kDict:
      return EvalDict(expr, scope);
    case Expr::Kind::kChain:
      return EvalChain(expr, scope);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
      return EvalLogic(expr, scope);
    case Expr::Kind::kCompare:
      return EvalCompare(expr, scope);
    case Expr::Kind::kConditional:
      return EvalConditional(expr, scope);
    case Expr::Kind::kPostfix:
      return EvalPostfix(expr, scope, Value());
    default:
      break;
  }
  INLAY_ASSIGN_OR_RETURN(const Value operand, Eval(*expr.items[0], scope));
  line_ = expr.line;
  if (expr.kind == Expr::Kind::kNot) return Value::Bool(!Truth(operand));
  return expr.kind == Expr::Kind::kNegate ? Negate(operand) : Plus(operand);
}

absl::StatusOr<Value> Evaluator::Resolve(const Value& name,
                                         const ScopePtr& scope) {
  if (const Value* value = scope->Find(name.text())) return *value;
  INLAY_ASSIGN_OR_RETURN(const Value* variable,
                         Lookup(env_.budget(), variables_, name));
  if (variable != nullptr) return *variable;
  if (const NativeDef* def = FindFunction(name.text())) {
    return Value::Function(def);
  }
  return Value::UndefinedVariable(name);
}

absl::StatusOr<Value> Evaluator::EvalItems(const Expr& expr,
                                           const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    INLAY_ASSIGN_OR_RETURN(Value value, Eval(*item, scope));
    items.push_back(std::move(value));
  }
  return expr.kind == Expr::Kind::kList ? env_.List(std::move(items))
                                        : env_.Tuple(std::move(items));
}

absl::StatusOr<Value> Evaluator::EvalDict(const Expr& expr,
                                          const ScopePtr& scope) {
  DictBuilder dict(env_);
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    INLAY_ASSIGN_OR_RETURN(const Value key, Eval(*expr.items[i], scope));
    INLAY_ASSIGN_OR_RETURN(Value value, Eval(*expr.items[i + 1], scope));
    INLAY_RETURN_IF_ERROR(dict.Set(key, std::move(value)));
  }
  return dict.Build();
}

absl::StatusOr<Value> Evaluator::EvalChain(const Expr& expr,
                                           const ScopePtr& scope) {
  INLAY_ASSIGN_OR_RETURN(Value value, Eval(*expr.items[0], scope));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(const Value next, Eval(*expr.items[i + 1], scope));
    line_ = expr.items[i + 1]->line;
    INLAY_ASSIGN_OR_RETURN(value, Apply(env_, expr.ops[i], value, next));
  }
  return value;
}

absl::StatusOr<Value> Evaluator::EvalLogic(const Expr& expr,
                                           const ScopePtr& scope) {
  const bool stops_at = expr.kind == Expr::Kind::kOr;
  Value value;
  for (const ExprPtr& item : expr.items) {
    INLAY_ASSIGN_OR_RETURN(value, Eval(*item, scope));
    if (Truth(value) == stops_at) return value;
  }
  return value;
}

absl::StatusOr<Value> Evaluator::EvalConditional(const Expr& expr,
                                                 const ScopePtr& scope) {
  INLAY_ASSIGN_OR_RETURN(const Value test, Eval(*expr.items[0], scope));
  if (Truth(test)) return Eval(*expr.items[1], scope);
  if (expr.items.size() > 2) return Eval(*expr.items[2], scope);
  return Value::UndefinedHint(
      "the inline if-expression evaluated to false and no else section was "
      "defined.");
}

absl::StatusOr<Value> Evaluator::EvalCompare(const Expr& expr,
                                             const ScopePtr& scope) {
  INLAY_ASSIGN_OR_RETURN(Value left, Eval(*expr.items[0], scope));
  for (size_t i = 0; i < expr.comparisons.size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(Value right, Eval(*expr.items[i + 1], scope));
    line_ = expr.line;
    INLAY_ASSIGN_OR_RETURN(const bool holds,
                           CompareValues(expr.comparisons[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<bool> Evaluator::CompareValues(Expr::Comparison comparison,
                                              const Value& a, const Value& b) {
  using C = Expr::Comparison;
  switch (comparison) {
    case C::kEqual:
      return Equal(env_.budget(), a, b);
    case C::kNotEqual: {
      INLAY_ASSIGN_OR_RETURN(const bool equal, Equal(env_.budget(), a, b));
      return !equal;
    }
    case C::kIn:
      return Contains(env_, b, a);
    case C::kNotIn: {
      INLAY_ASSIGN_OR_RETURN(const bool inside, Contains(env_, b, a));
      return !inside;
    }
    case C::kLess:
      return Compare(env_.budget(), Order::kLess, a, b);
    case C::kLessEqual:
      return Compare(env_.budget(), Order::kLessEqual, a, b);
    case C::kGreater:
      return Compare(env_.budget(), Order::kGreater, a, b);
    case C::kGreaterEqual:
      return Compare(env_.budget(), Order::kGreaterEqual, a, b);
  }
  return false;
}

}  // namespace inlay::tmpl
