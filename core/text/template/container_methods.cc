// Methods of dictionaries, lists, tuples, ranges, and of `loop`. Those that
// would change a container do not exist here: the sandbox is immutable.
#include "core/text/template/callables.h"
#include "core/text/template/loop.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;

Result Get(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const Value* member,
                         Lookup(env.budget(), self, args[0]));
  if (member != nullptr) return *member;
  return args.has(1) ? args[1] : Value();
}

template <DictView kView>
Result View(Env&, const Value& self, const Args&) {
  return Value::View(kView, self);
}

Result Copy(Env&, const Value& self, const Args&) { return self; }

Result Index(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const int64_t length, Length(self));
  INLAY_ASSIGN_OR_RETURN(int64_t start, args.Integer(1, 0, "index's start"));
  INLAY_ASSIGN_OR_RETURN(int64_t stop, args.Integer(2, length, "index's stop"));
  if (start < 0) start = std::max<int64_t>(0, start + length);
  if (stop < 0) stop += length;
  INLAY_ASSIGN_OR_RETURN(ValueIterator it, ValueIterator::Over(env, self));
  Value item;
  for (int64_t i = 0;; ++i) {
    INLAY_ASSIGN_OR_RETURN(const bool more, it.Next(item));
    if (!more || i >= stop) break;
    INLAY_ASSIGN_OR_RETURN(const bool same, Equal(env.budget(), item, args[0]));
    if (same && i >= start) return Value::OfInt(i);
  }
  return absl::InvalidArgumentError(
      FormattedString("index: the value is not in the %s", TypeName(self)));
}

Result Count(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(ValueIterator it, ValueIterator::Over(env, self));
  Value item;
  Int count = 0;
  while (true) {
    INLAY_ASSIGN_OR_RETURN(const bool more, it.Next(item));
    if (!more) return Value::OfInt(count);
    INLAY_ASSIGN_OR_RETURN(const bool same, Equal(env.budget(), item, args[0]));
    count += same;
  }
}

Result Cycle(Env&, const Value& self, const Args& args) {
  const auto& values = args.raw().positional;
  if (values.empty()) return TypeError("no items for cycling given");
  const auto index = static_cast<size_t>(
      std::max<int64_t>(0, self.object<LoopObject>()->index0));
  return values[index % values.size()];
}

Result Changed(Env& env, const Value& self, const Args& args) {
  auto* loop = self.object<LoopObject>();
  INLAY_ASSIGN_OR_RETURN(Value now, env.Tuple(args.raw().positional));
  if (loop->last_changed.has_value()) {
    INLAY_ASSIGN_OR_RETURN(const bool same,
                           Equal(env.budget(), *loop->last_changed, now));
    if (same) return Value::Bool(false);
  }
  loop->last_changed = std::move(now);
  return Value::Bool(true);
}

constexpr NativeDef kDict[] = {
    {"get", "key! default", Get},
    {"items", "", View<DictView::kItems>},
    {"keys", "", View<DictView::kKeys>},
    {"values", "", View<DictView::kValues>},
    {"copy", "", Copy},
};

constexpr NativeDef kList[] = {
    {"index", "value! start stop", Index},
    {"count", "value!", Count},
    {"copy", "", Copy},
};

constexpr NativeDef kTuple[] = {
    {"index", "value! start stop", Index},
    {"count", "value!", Count},
};

constexpr NativeDef kLoop[] = {
    {"cycle", "*", Cycle},
    {"changed", "*", Changed},
};

}  // namespace

std::span<const NativeDef> ContainerMethods(Kind kind) {
  switch (kind) {
    case Kind::kDict:
      return kDict;
    case Kind::kList:
      return kList;
    case Kind::kTuple:
    case Kind::kRange:
      return kTuple;
    case Kind::kLoop:
      return kLoop;
    default:
      return {};
  }
}

}  // namespace inlay::tmpl
