// What may follow `is`.
#include "core/text/template/arithmetic.h"
#include "core/text/template/callables.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;

template <bool (*kPredicate)(const Value&)>
Result Check(Env&, const Value& self, const Args&) {
  return Value::Bool(kPredicate(self));
}

template <Kind kKind>
Result IsKind(Env&, const Value& self, const Args&) {
  return Value::Bool(self.is(kKind));
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsTrue(const Value& v) { return v.is(Kind::kBool) && v.boolean(); }
bool IsFalse(const Value& v) { return v.is(Kind::kBool) && !v.boolean(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsSequence(const Value& v) {
  // Undefined values too: Python finds both len() and __getitem__ on them.
  return v.is_undefined() || v.is_string() || v.is_sequence() ||
         v.is(Kind::kDict) || v.is(Kind::kRange);
}
bool IsCallable(const Value& v) {
  return v.is(Kind::kMacro) || v.is(Kind::kMethod) || v.is(Kind::kFunction) ||
         v.is(Kind::kLoop) || v.is_undefined();
}
bool Never(const Value&) { return false; }

template <int kRest>
Result HasRest(Env& env, const Value& self, const Args&) {
  INLAY_ASSIGN_OR_RETURN(const Value rest,
                         Apply(env, BinaryOp::kMod, self, Value::OfInt(2)));
  INLAY_ASSIGN_OR_RETURN(const bool same,
                         Equal(env.budget(), rest, Value::OfInt(kRest)));
  return Value::Bool(same);
}

Result DivisibleBy(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const Value rest,
                         Apply(env, BinaryOp::kMod, self, args[0]));
  INLAY_ASSIGN_OR_RETURN(const bool same,
                         Equal(env.budget(), rest, Value::OfInt(0)));
  return Value::Bool(same);
}

template <bool kEqual>
Result EqualTo(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const bool same, Equal(env.budget(), self, args[0]));
  return Value::Bool(same == kEqual);
}

template <Order kOrder>
Result Ordered(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const bool holds,
                         Compare(env.budget(), kOrder, self, args[0]));
  return Value::Bool(holds);
}

Result In(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const bool inside, Contains(env, args[0], self));
  return Value::Bool(inside);
}

Result SameAs(Env&, const Value& self, const Args& args) {
  return Value::Bool(Identical(self, args[0]));
}

template <const char* kMethod>
Result ByMethod(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, self));
  return CallNative(env, *FindMethod(text, kMethod), text, args.raw());
}

constexpr char kIsLower[] = "islower";
constexpr char kIsUpper[] = "isupper";

Result IsFilter(Env&, const Value& self, const Args&) {
  return Value::Bool(self.is_string() && FindFilter(self.text()) != nullptr);
}

Result IsTest(Env&, const Value& self, const Args&) {
  return Value::Bool(self.is_string() && FindTest(self.text()) != nullptr);
}

constexpr NativeDef kTests[] = {
    {"defined", "", Check<IsDefined>},
    {"undefined", "", IsKind<Kind::kUndefined>},
    {"none", "", IsKind<Kind::kNone>},
    {"string", "", IsKind<Kind::kString>},
    {"mapping", "", IsKind<Kind::kDict>},
    {"iterable", "", Check<IsIterable>},
    {"sequence", "", Check<IsSequence>},
    {"number", "", Check<IsNumber>},
    {"integer", "", IsKind<Kind::kInt>},
    {"float", "", IsKind<Kind::kFloat>},
    {"boolean", "", IsKind<Kind::kBool>},
    {"true", "", Check<IsTrue>},
    {"false", "", Check<IsFalse>},
    {"callable", "", Check<IsCallable>},
    {"escaped", "", Check<Never>},
    {"filter", "", IsFilter},
    {"test", "", IsTest},
    {"odd", "", HasRest<1>},
    {"even", "", HasRest<0>},
    {"divisibleby", "num!", DivisibleBy},
    {"in", "seq!", In},
    {"sameas", "other!", SameAs},
    {"lower", "", ByMethod<kIsLower>},
    {"upper", "", ByMethod<kIsUpper>},
    {"==", "other!", EqualTo<true>},
    {"eq", "other!", EqualTo<true>},
    {"equalto", "other!", EqualTo<true>},
    {"!=", "other!", EqualTo<false>},
    {"ne", "other!", EqualTo<false>},
    {"<", "other!", Ordered<Order::kLess>},
    {"lt", "other!", Ordered<Order::kLess>},
    {"lessthan", "other!", Ordered<Order::kLess>},
    {"<=", "other!", Ordered<Order::kLessEqual>},
    {"le", "other!", Ordered<Order::kLessEqual>},
    {">", "other!", Ordered<Order::kGreater>},
    {"gt", "other!", Ordered<Order::kGreater>},
    {"greaterthan", "other!", Ordered<Order::kGreater>},
    {">=", "other!", Ordered<Order::kGreaterEqual>},
    {"ge", "other!", Ordered<Order::kGreaterEqual>},
};

}  // namespace

std::span<const NativeDef> Tests() { return kTests; }

}  // namespace inlay::tmpl
