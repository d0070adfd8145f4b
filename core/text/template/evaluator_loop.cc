// Loops: the part of Evaluator that pulls elements and answers `loop.*`.
#include "core/text/template/evaluator.h"
#include "core/text/template/members.h"
#include "memory/status.h"

namespace inlay::tmpl {

// One more element of the source that passes the loop's condition into `ahead`;
// false at the end.
absl::StatusOr<bool> Evaluator::Fill(LoopObject& loop) {
  if (!loop.source.has_value()) return false;
  Value item;
  while (true) {
    INLAY_ASSIGN_OR_RETURN(const bool more, loop.source->Next(item));
    if (!more) return false;
    if (loop.node->exprs.size() > 1) {
      auto scope = std::make_shared<Scope>(loop.outer);
      INLAY_RETURN_IF_ERROR(Assign(loop.node->target, item, *scope));
      INLAY_ASSIGN_OR_RETURN(const Value test,
                             Eval(*loop.node->exprs[1], scope));
      if (!Truth(test)) continue;
    }
    INLAY_RETURN_IF_ERROR(
        env_.budget().CheckRoom((loop.ahead.size() + 1) * sizeof(Value)));
    loop.ahead.push_back(std::move(item));
    return true;
  }
}

absl::StatusOr<bool> Evaluator::Pull(LoopObject& loop, Value& out) {
  if (loop.ahead.empty()) {
    INLAY_ASSIGN_OR_RETURN(const bool more, Fill(loop));
    if (!more) return false;
  }
  out = std::move(loop.ahead.front());
  loop.ahead.pop_front();
  ++loop.index0;
  loop.previous = std::move(loop.current);
  loop.current = out;
  return true;
}

absl::StatusOr<Int> Evaluator::LoopLength(LoopObject& loop) {
  if (!loop.length.has_value()) {
    const int64_t known =
        loop.source.has_value() && loop.node->exprs.size() == 1
            ? loop.source->known_length()
            : -1;
    if (known >= 0) {
      loop.length = known;
    } else {
      while (true) {
        INLAY_ASSIGN_OR_RETURN(const bool more, Fill(loop));
        if (!more) break;
      }
      loop.length = loop.index0 + 1 + static_cast<int64_t>(loop.ahead.size());
    }
  }
  return *loop.length;
}

absl::StatusOr<Value> Evaluator::LoopMember(LoopObject& loop, const Value& self,
                                            const Value& name) {
  const std::string& member = name.text();
  if (member == "index") return Value::OfInt(loop.index0 + 1);
  if (member == "index0") return Value::OfInt(loop.index0);
  if (member == "first") return Value::Bool(loop.index0 == 0);
  if (member == "depth") return Value::OfInt(1);
  if (member == "depth0") return Value::OfInt(0);
  if (member == "length" || member == "revindex" || member == "revindex0") {
    INLAY_ASSIGN_OR_RETURN(const Int length, LoopLength(loop));
    if (member == "length") return Value::OfInt(length);
    return Value::OfInt(length - loop.index0 - (member == "revindex" ? 0 : 1));
  }
  if (member == "last" || member == "nextitem") {
    bool more = !loop.ahead.empty();
    if (!more) {
      INLAY_ASSIGN_OR_RETURN(more, Fill(loop));
    }
    if (member == "last") return Value::Bool(!more);
    return more ? loop.ahead.front()
                : Value::UndefinedHint("there is no next item");
  }
  if (member == "previtem") {
    return loop.index0 == 0 ? Value::UndefinedHint("there is no previous item")
                            : loop.previous;
  }
  return GetAttribute(env_, self, name);
}

}  // namespace inlay::tmpl
