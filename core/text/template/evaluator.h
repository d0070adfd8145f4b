// Walks a parsed template and writes its text. One per rendering; not
// thread-safe. Knows nothing of how templates are parsed or where variables
// come from.
#ifndef INLAY_CORE_TEXT_TEMPLATE_EVALUATOR_H_
#define INLAY_CORE_TEXT_TEMPLATE_EVALUATOR_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/text/template/ast.h"
#include "core/text/template/callables.h"
#include "core/text/template/env.h"
#include "core/text/template/loop.h"
#include "core/text/template/scope.h"

namespace inlay::tmpl {

class Evaluator {
 public:
  // `variables`: a dictionary value of `env`.
  Evaluator(Env& env, Value variables)
      : env_(env), variables_(std::move(variables)) {}

  absl::StatusOr<std::string> Run(const Body& body);
  // The line being evaluated: after an error, where it happened.
  int line() const { return line_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // evaluator_statements.cc
  absl::StatusOr<Flow> Exec(const Body& body, const ScopePtr& scope);
  absl::StatusOr<Flow> ExecNode(const Node& node, const ScopePtr& scope);
  absl::StatusOr<Flow> ExecIf(const Node& node, const ScopePtr& scope);
  absl::StatusOr<Flow> ExecFor(const Node& node, const ScopePtr& scope);
  absl::StatusOr<Flow> ExecWith(const Node& node, const ScopePtr& scope);
  absl::Status ExecPrint(const Node& node, const ScopePtr& scope);
  absl::Status ExecSet(const Node& node, const ScopePtr& scope);
  // The body's text, through the node's filters.
  absl::StatusOr<Value> Capture(const Body& body, const ScopePtr& scope,
                                Flow& flow);
  absl::StatusOr<Value> ApplyFilters(const Node& node, Value value,
                                     const ScopePtr& scope);
  absl::Status Assign(const Target& target, Value value, Scope& scope);
  absl::Status Unpack(const Target& target, const Value& value, Scope& scope);

  // evaluator_loop.cc
  absl::StatusOr<bool> Pull(LoopObject& loop, Value& out);
  absl::StatusOr<bool> Fill(LoopObject& loop);
  absl::StatusOr<Value> LoopMember(LoopObject& loop, const Value& self,
                                   const Value& name);
  absl::StatusOr<Int> LoopLength(LoopObject& loop);

  // evaluator_expressions.cc
  absl::StatusOr<Value> Eval(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalItems(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalDict(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalChain(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalLogic(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalCompare(const Expr& expr, const ScopePtr& scope);
  absl::StatusOr<Value> EvalConditional(const Expr& expr,
                                        const ScopePtr& scope);
  absl::StatusOr<bool> CompareValues(Expr::Comparison comparison,
                                     const Value& a, const Value& b);
  absl::StatusOr<Value> Resolve(const Value& name, const ScopePtr& scope);

  // evaluator_calls.cc
  // `caller` (none without one) goes to the last call.
  absl::StatusOr<Value> EvalPostfix(const Expr& expr, const ScopePtr& scope,
                                    const Value& caller);
  absl::StatusOr<Value> Step(const Postfix& step, const Value& value,
                             const ScopePtr& scope, const Value& caller);
  absl::StatusOr<Value> EvalSlice(const Postfix& step, const Value& value,
                                  const ScopePtr& scope);
  absl::StatusOr<CallArgs> EvalArguments(const Arguments& args,
                                         const ScopePtr& scope);
  absl::Status Spread(const Arguments& args, const ScopePtr& scope,
                      CallArgs& out);
  absl::StatusOr<Value> Call(const Value& callee, CallArgs args);
  absl::StatusOr<Value> CallMacro(MacroObject& macro, CallArgs args);
  absl::Status BindMacro(const MacroObject& macro, CallArgs args,
                         const ScopePtr& scope);
  absl::Status BindSpecialNames(const MacroObject& macro, CallArgs args,
                                const ScopePtr& scope);
  absl::StatusOr<Value> MakeMacro(const Node& node, const ScopePtr& scope);

  // Counts one level of recursion for its lifetime.
  class Nested {
   public:
    explicit Nested(Evaluator& evaluator) : evaluator_(evaluator) {
      ++evaluator_.depth_;
    }
    ~Nested() { --evaluator_.depth_; }
    absl::Status Check() const;

   private:
    Evaluator& evaluator_;
  };

  Env& env_;
  const Value variables_;
  TextSink* out_ = nullptr;
  int line_ = 1;
  int depth_ = 0;
  int macro_depth_ = 0;
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_EVALUATOR_H_
