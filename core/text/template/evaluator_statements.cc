// Statements: the outer half of Evaluator.
#include "core/text/template/evaluator.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

// Bounds the stack: a level costs at most about 1 KiB of it (4 KiB under
// AddressSanitizer), and a template as deep as the parser allows, called
// through a dozen macros, stays below.
constexpr int kMaxEvalDepth = 512;

}  // namespace

absl::Status Evaluator::Nested::Check() const {
  if (evaluator_.depth_ <= kMaxEvalDepth) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      FormattedString("the template's evaluation nests deeper than the %d "
                      "levels allowed",
                      kMaxEvalDepth));
}

absl::StatusOr<std::string> Evaluator::Run(const Body& body) {
  TextSink out(env_.budget(), env_.budget().limits().max_output_bytes);
  out_ = &out;
  const auto scope = std::make_shared<Scope>(nullptr);
  INLAY_RETURN_IF_ERROR(Exec(body, scope).status());
  return out.Take();
}

absl::StatusOr<Evaluator::Flow> Evaluator::Exec(const Body& body,
                                                const ScopePtr& scope) {
  const Nested nested(*this);
  INLAY_RETURN_IF_ERROR(nested.Check());
  for (const auto& node : body) {
    line_ = node->line;
    INLAY_RETURN_IF_ERROR(env_.budget().Spend(1));
    INLAY_ASSIGN_OR_RETURN(const Flow flow, ExecNode(*node, scope));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecNode(const Node& node,
                                                    const ScopePtr& scope) {
  Flow flow = Flow::kNext;
  switch (node.kind) {
    case Node::Kind::kText:
      out_->Append(node.text);
      INLAY_RETURN_IF_ERROR(out_->status());
      return flow;
    case Node::Kind::kPrint:
      INLAY_RETURN_IF_ERROR(ExecPrint(node, scope));
      return flow;
    case Node::Kind::kIf:
      return ExecIf(node, scope);
    case Node::Kind::kFor:
      return ExecFor(node, scope);
    case Node::Kind::kSet:
      INLAY_RETURN_IF_ERROR(ExecSet(node, scope));
      return flow;
    case Node::Kind::kSetBlock: {
      INLAY_ASSIGN_OR_RETURN(Value text, Capture(node.bodies[0], scope, flow));
      if (flow != Flow::kNext) return flow;
      INLAY_ASSIGN_OR_RETURN(text, ApplyFilters(node, std::move(text), scope));
      INLAY_RETURN_IF_ERROR(Assign(node.target, std::move(text), *scope));
      return flow;
    }
    case Node::Kind::kFilter: {
      INLAY_ASSIGN_OR_RETURN(Value text, Capture(node.bodies[0], scope, flow));
      if (flow != Flow::kNext) return flow;
      INLAY_ASSIGN_OR_RETURN(text, ApplyFilters(node, std::move(text), scope));
      INLAY_RETURN_IF_ERROR(AppendStr(env_, text, *out_));
      return flow;
    }
    case Node::Kind::kMacro: {
      INLAY_ASSIGN_OR_RETURN(Value macro, MakeMacro(node, scope));
      scope->Set(node.text, std::move(macro));
      return flow;
    }
    case Node::Kind::kCallBlock: {
      INLAY_ASSIGN_OR_RETURN(const Value caller, MakeMacro(node, scope));
      INLAY_ASSIGN_OR_RETURN(const Value text,
                             EvalPostfix(*node.exprs[0], scope, caller));
      INLAY_RETURN_IF_ERROR(AppendStr(env_, text, *out_));
      return flow;
    }
    case Node::Kind::kWith:
      return ExecWith(node, scope);
    case Node::Kind::kScope:
      return Exec(node.bodies[0], std::make_shared<Scope>(scope));
    case Node::Kind::kBreak:
      return Flow::kBreak;
    case Node::Kind::kContinue:
      return Flow::kContinue;
  }
  return flow;
}

absl::Status Evaluator::ExecPrint(const Node& node, const ScopePtr& scope) {
  for (const ExprPtr& expr : node.exprs) {
    INLAY_ASSIGN_OR_RETURN(const Value value, Eval(*expr, scope));
    INLAY_RETURN_IF_ERROR(AppendStr(env_, value, *out_));
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecIf(const Node& node,
                                                  const ScopePtr& scope) {
  for (size_t i = 0; i < node.exprs.size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(const Value test, Eval(*node.exprs[i], scope));
    if (Truth(test)) return Exec(node.bodies[i], scope);
  }
  if (node.bodies.size() > node.exprs.size()) {
    return Exec(node.bodies.back(), scope);
  }
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecFor(const Node& node,
                                                   const ScopePtr& scope) {
  INLAY_ASSIGN_OR_RETURN(const Value items, Eval(*node.exprs[0], scope));
  INLAY_ASSIGN_OR_RETURN(LoopObject * loop, env_.New<LoopObject>());
  loop->node = &node;
  loop->outer = scope;
  INLAY_ASSIGN_OR_RETURN(loop->source, ValueIterator::Over(env_, items));
  Value item;
  while (true) {
    INLAY_ASSIGN_OR_RETURN(const bool more, Pull(*loop, item));
    if (!more) break;
    auto inner = std::make_shared<Scope>(scope);
    inner->Set("loop", Value::OfObject(Kind::kLoop, loop));
    INLAY_RETURN_IF_ERROR(Assign(node.target, std::move(item), *inner));
    INLAY_ASSIGN_OR_RETURN(const Flow flow, Exec(node.bodies[0], inner));
    if (flow == Flow::kBreak) break;
  }
  const bool visited_none = loop->index0 < 0;
  loop->Finish();
  if (visited_none && node.bodies.size() > 1) {
    return Exec(node.bodies[1], std::make_shared<Scope>(scope));
  }
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::ExecWith(const Node& node,
                                                    const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < node.exprs.size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(Value value, Eval(*node.exprs[i], scope));
    INLAY_RETURN_IF_ERROR(Assign(node.targets[i], std::move(value), *inner));
  }
  return Exec(node.bodies[0], inner);
}

absl::Status Evaluator::ExecSet(const Node& node, const ScopePtr& scope) {
  INLAY_ASSIGN_OR_RETURN(Value value, Eval(*node.exprs[0], scope));
  return Assign(node.target, std::move(value), *scope);
}

absl::StatusOr<Value> Evaluator::Capture(const Body& body,
                                         const ScopePtr& scope, Flow& flow) {
  TextSink captured(env_.budget());
  TextSink* const outer = out_;
  out_ = &captured;
  absl::StatusOr<Flow> result = Exec(body, std::make_shared<Scope>(scope));
  out_ = outer;
  if (!result.ok()) return result.status();
  flow = *result;
  INLAY_ASSIGN_OR_RETURN(std::string text, captured.Take());
  return env_.String(std::move(text));
}

absl::StatusOr<Value> Evaluator::ApplyFilters(const Node& node, Value value,
                                              const ScopePtr& scope) {
  for (const Postfix& filter : node.filters) {
    INLAY_ASSIGN_OR_RETURN(value, Step(filter, value, scope, Value()));
  }
  return value;
}

absl::Status Evaluator::Assign(const Target& target, Value value,
                               Scope& scope) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope.Set(target.name, std::move(value));
      return absl::OkStatus();
    case Target::Kind::kTuple:
      return Unpack(target, value, scope);
    case Target::Kind::kMember:
      break;
  }
  const Value* owner = scope.Find(target.name);
  if (owner == nullptr) owner = LookupText(variables_, target.name);
  if (owner == nullptr || !owner->is(Kind::kNamespace)) {
    return absl::InvalidArgumentError(FormattedString(
        "cannot assign attribute '%s' on '%s': only namespace objects can be "
        "changed",
        target.member, target.name));
  }
  auto* object = owner->object<NamespaceObject>();
  if (Value* member = object->Find(target.member)) {
    *member = std::move(value);
  } else {
    object->order.emplace_back(target.member, std::move(value));
  }
  return absl::OkStatus();
}

absl::Status Evaluator::Unpack(const Target& target, const Value& value,
                               Scope& scope) {
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env_, value));
  if (items.size() != target.items.size()) {
    return absl::InvalidArgumentError(FormattedString(
        "%s values to unpack (expected %d, got %d)",
        items.size() < target.items.size() ? "not enough" : "too many",
        target.items.size(), items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    INLAY_RETURN_IF_ERROR(Assign(target.items[i], std::move(items[i]), scope));
  }
  return absl::OkStatus();
}

}  // namespace inlay::tmpl
