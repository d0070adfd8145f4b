// The variables of a block while it runs, inside those of the block around it.
// Macros refer to the scope they were defined in weakly, since that scope may
// hold the macro itself.
#ifndef INLAY_CORE_TEXT_TEMPLATE_SCOPE_H_
#define INLAY_CORE_TEXT_TEMPLATE_SCOPE_H_

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/template/ast.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

struct Scope;
using ScopePtr = std::shared_ptr<Scope>;

struct Scope {
  explicit Scope(ScopePtr outer_scope) : outer(std::move(outer_scope)) {}

  // Names are views of the syntax tree, which outlives every scope.
  void Set(std::string_view name, Value value) {
    for (auto& [known, old] : variables) {
      if (known == name) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }
  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr;
         scope = scope->outer.get()) {
      for (const auto& [known, value] : scope->variables) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }

  const ScopePtr outer;
  std::vector<std::pair<std::string_view, Value>> variables;
};

struct MacroObject : Object {
  const Node* node = nullptr;  // a macro or a call block
  std::weak_ptr<Scope> scope;
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_SCOPE_H_
