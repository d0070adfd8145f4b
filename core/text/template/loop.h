// The state behind the `loop` variable. Elements are pulled one at a time, as
// Jinja does, because the condition of a loop may depend on what its body did.
#ifndef INLAY_CORE_TEXT_TEMPLATE_LOOP_H_
#define INLAY_CORE_TEXT_TEMPLATE_LOOP_H_

#include <deque>
#include <optional>

#include "core/text/template/scope.h"
#include "core/text/template/value.h"
#include "core/text/template/value_ops.h"

namespace inlay::tmpl {

struct LoopObject : Object {
  const Node* node = nullptr;
  ScopePtr outer;  // dropped, like the values, when the loop ends
  std::optional<ValueIterator> source;
  std::deque<Value> ahead;  // pulled from the source but not yet visited
  int64_t index0 = -1;
  Value previous, current;
  std::optional<Int> length;
  std::optional<Value> last_changed;

  void Finish() {
    outer.reset();
    source.reset();
    ahead.clear();
    previous = current = Value();
    last_changed.reset();
  }
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_LOOP_H_
