// Postfix chains and calls, of macros above all. Part of Evaluator.
#include <algorithm>

#include "core/text/template/evaluator.h"
#include "core/text/template/members.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {

absl::StatusOr<Value> Evaluator::EvalPostfix(const Expr& expr,
                                             const ScopePtr& scope,
                                             const Value& caller) {
  INLAY_ASSIGN_OR_RETURN(Value value, Eval(*expr.items[0], scope));
  for (const Postfix& step : expr.steps) {
    const bool last = &step == &expr.steps.back();
    INLAY_ASSIGN_OR_RETURN(value,
                           Step(step, value, scope, last ? caller : Value()));
  }
  return value;
}

absl::StatusOr<Value> Evaluator::Step(const Postfix& step, const Value& value,
                                      const ScopePtr& scope,
                                      const Value& caller) {
  INLAY_RETURN_IF_ERROR(env_.budget().Spend(1));
  switch (step.kind) {
    case Postfix::Kind::kAttribute:
      line_ = step.line;
      if (value.is(Kind::kLoop)) {
        return LoopMember(*value.object<LoopObject>(), value, step.name);
      }
      return GetAttribute(env_, value, step.name);
    case Postfix::Kind::kIndex: {
      INLAY_ASSIGN_OR_RETURN(const Value key, Eval(*step.index, scope));
      line_ = step.line;
      if (value.is(Kind::kLoop) && key.is_string()) {
        return LoopMember(*value.object<LoopObject>(), value, key);
      }
      return GetItem(env_, value, key);
    }
    case Postfix::Kind::kSlice:
      return EvalSlice(step, value, scope);
    default:
      break;
  }
  INLAY_ASSIGN_OR_RETURN(CallArgs args, EvalArguments(step.args, scope));
  line_ = step.line;
  switch (step.kind) {
    case Postfix::Kind::kFilter:
      return ApplyFilter(env_, step.name.text(), value, args);
    case Postfix::Kind::kTest: {
      INLAY_ASSIGN_OR_RETURN(const bool passes,
                             ApplyTest(env_, step.name.text(), value, args));
      return Value::Bool(passes != step.negated);
    }
    default:
      if (!caller.is_none()) args.named.emplace_back("caller", caller);
      return Call(value, std::move(args));
  }
}

absl::StatusOr<Value> Evaluator::EvalSlice(const Postfix& step,
                                           const Value& value,
                                           const ScopePtr& scope) {
  Value bounds[3];
  const ExprPtr* exprs[3] = {&step.index, &step.stop, &step.step};
  for (int i = 0; i < 3; ++i) {
    if (*exprs[i] == nullptr) continue;
    INLAY_ASSIGN_OR_RETURN(bounds[i], Eval(**exprs[i], scope));
  }
  line_ = step.line;
  return Slice(env_, value, bounds[0], bounds[1], bounds[2]);
}

absl::StatusOr<CallArgs> Evaluator::EvalArguments(const Arguments& args,
                                                  const ScopePtr& scope) {
  CallArgs out;
  for (const ExprPtr& expr : args.positional) {
    INLAY_ASSIGN_OR_RETURN(Value value, Eval(*expr, scope));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : args.named) {
    INLAY_ASSIGN_OR_RETURN(Value value, Eval(*expr, scope));
    out.named.emplace_back(name, std::move(value));
  }
  if (args.star != nullptr || args.double_star != nullptr) {
    INLAY_RETURN_IF_ERROR(Spread(args, scope, out));
  }
  return out;
}

absl::Status Evaluator::Spread(const Arguments& args, const ScopePtr& scope,
                               CallArgs& out) {
  if (args.star != nullptr) {
    INLAY_ASSIGN_OR_RETURN(const Value list, Eval(*args.star, scope));
    INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env_, list));
    for (Value& item : items) out.positional.push_back(std::move(item));
  }
  if (args.double_star == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const Value dict, Eval(*args.double_star, scope));
  if (!dict.is(Kind::kDict)) {
    return TypeError(FormattedString(
        "argument after ** must be a mapping, not %s", TypeName(dict)));
  }
  for (const auto& [key, value] : dict.dict().entries) {
    if (!key.is_string()) return TypeError("keywords must be strings");
    INLAY_RETURN_IF_ERROR(env_.budget().Spend(1));
    out.named.emplace_back(key.text(), value);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Evaluator::Call(const Value& callee, CallArgs args) {
  switch (callee.kind()) {
    case Kind::kMacro:
      return CallMacro(*callee.object<MacroObject>(), std::move(args));
    case Kind::kMethod:
      return CallNative(env_, *callee.method().def, callee.method().self, args);
    case Kind::kFunction:
      return CallNative(env_, *callee.function(), Value(), args);
    case Kind::kUndefined:
      return UndefinedError(callee);
    case Kind::kLoop:
      return absl::UnimplementedError("recursive loops are not supported");
    default:
      return TypeError(
          FormattedString("'%s' object is not callable", TypeName(callee)));
  }
}

absl::StatusOr<Value> Evaluator::MakeMacro(const Node& node,
                                           const ScopePtr& scope) {
  INLAY_ASSIGN_OR_RETURN(MacroObject * macro, env_.New<MacroObject>());
  macro->node = &node;
  macro->scope = scope;
  return Value::OfObject(Kind::kMacro, macro);
}

absl::StatusOr<Value> Evaluator::CallMacro(MacroObject& macro, CallArgs args) {
  const int max = env_.budget().limits().max_depth;
  if (macro_depth_ >= max) {
    return absl::ResourceExhaustedError(FormattedString(
        "calls of macros nested deeper than the %d levels allowed (in '%s')",
        max, macro.node->text));
  }
  const ScopePtr defined_in = macro.scope.lock();
  if (defined_in == nullptr) {
    return absl::UnimplementedError(FormattedString(
        "macro '%s' is called after the block that defined it ended",
        macro.node->text));
  }
  const auto scope = std::make_shared<Scope>(defined_in);
  const int call_line = line_;
  ++macro_depth_;
  absl::Status bound = BindMacro(macro, std::move(args), scope);
  Flow flow = Flow::kNext;
  absl::StatusOr<Value> text =
      bound.ok() ? Capture(macro.node->bodies[0], scope, flow) : bound;
  --macro_depth_;
  if (text.ok()) line_ = call_line;
  return text;
}

absl::Status Evaluator::BindMacro(const MacroObject& macro, CallArgs args,
                                  const ScopePtr& scope) {
  const Signature& signature = macro.node->signature;
  const size_t num_params = signature.params.size();
  const size_t first_default = num_params - signature.defaults.size();
  const size_t num_taken = std::min(args.positional.size(), num_params);
  for (size_t i = 0; i < num_taken; ++i) {
    scope->Set(signature.params[i], std::move(args.positional[i]));
  }
  args.positional.erase(
      args.positional.begin(),
      args.positional.begin() + static_cast<ptrdiff_t>(num_taken));
  for (size_t i = num_taken; i < num_params; ++i) {
    const std::string& name = signature.params[i];
    const auto given =
        std::find_if(args.named.begin(), args.named.end(),
                     [&name](const auto& arg) { return arg.first == name; });
    if (given != args.named.end()) {
      scope->Set(name, std::move(given->second));
      args.named.erase(given);
    } else if (i >= first_default) {
      INLAY_ASSIGN_OR_RETURN(
          Value value, Eval(*signature.defaults[i - first_default], scope));
      scope->Set(name, std::move(value));
    } else {
      scope->Set(name, Value::UndefinedHint(FormattedString(
                           "parameter '%s' was not provided", name)));
    }
  }
  return BindSpecialNames(macro, std::move(args), scope);
}

// caller, kwargs and varargs, or the error for arguments that nothing takes.
absl::Status Evaluator::BindSpecialNames(const MacroObject& macro,
                                         CallArgs args, const ScopePtr& scope) {
  const Signature& signature = macro.node->signature;
  const bool has_caller_param =
      std::find(signature.params.begin(), signature.params.end(), "caller") !=
      signature.params.end();
  if (signature.uses_caller && !has_caller_param) {
    const auto caller =
        std::find_if(args.named.begin(), args.named.end(),
                     [](const auto& arg) { return arg.first == "caller"; });
    if (caller != args.named.end()) {
      scope->Set("caller", std::move(caller->second));
      args.named.erase(caller);
    } else {
      scope->Set("caller", Value::UndefinedHint("No caller defined"));
    }
  }
  if (signature.uses_kwargs) {
    DictBuilder kwargs(env_);
    for (auto& [name, value] : args.named) {
      INLAY_ASSIGN_OR_RETURN(const Value key, env_.String(name));
      INLAY_RETURN_IF_ERROR(kwargs.Set(key, std::move(value)));
    }
    INLAY_ASSIGN_OR_RETURN(Value dict, kwargs.Build());
    scope->Set("kwargs", std::move(dict));
  } else if (!args.named.empty()) {
    return TypeError(
        FormattedString("macro '%s' takes no keyword argument '%s'",
                        macro.node->text, args.named[0].first));
  }
  if (signature.uses_varargs) {
    INLAY_ASSIGN_OR_RETURN(Value rest, env_.Tuple(std::move(args.positional)));
    scope->Set("varargs", std::move(rest));
  } else if (!args.positional.empty()) {
    return TypeError(
        FormattedString("macro '%s' takes not more than %d argument(s)",
                        macro.node->text, signature.params.size()));
  }
  return absl::OkStatus();
}

}  // namespace inlay::tmpl
