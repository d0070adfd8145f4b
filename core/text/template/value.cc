#include "core/text/template/value.h"

#include "core/text/template/python_repr.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_reps.h"
#include "memory/formatted_string.h"

namespace inlay::tmpl {

Value Value::Bool(bool b) {
  Value v;
  v.kind_ = Kind::kBool;
  v.int_ = b ? 1 : 0;
  return v;
}

Value Value::OfInt(Int i) {
  Value v;
  v.kind_ = Kind::kInt;
  v.int_ = i;
  return v;
}

Value Value::OfFloat(double f) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.float_ = f;
  return v;
}

Value Value::Constant(std::string text) {
  auto rep = std::make_shared<StringRep>();
  rep->num_chars = CountChars(text);
  rep->text = std::move(text);
  return OfRep(Kind::kString, std::move(rep));
}

Value Value::UndefinedVariable(const Value& name) {
  Value v;
  v.kind_ = Kind::kUndefined;
  v.sub_ = static_cast<uint8_t>(Missing::kVariable);
  v.rep_ = name.rep_;
  return v;
}

Value Value::UndefinedMember(Kind owner, const Value& key) {
  if (!key.is_string()) {
    // Not a name: the message needs the key's repr, and such keys are rare.
    return UndefinedHint(
        FormattedString("%s object has no such element", TypeName(owner)));
  }
  Value v = UndefinedVariable(key);
  v.sub_ = static_cast<uint8_t>(Missing::kMember);
  v.int_ = static_cast<Int>(owner);
  return v;
}

Value Value::UndefinedHint(std::string hint) {
  Value v = UndefinedVariable(Constant(std::move(hint)));
  v.sub_ = static_cast<uint8_t>(Missing::kHint);
  return v;
}

Value Value::NoArgument() {
  Value v;
  v.kind_ = Kind::kUndefined;
  v.sub_ = static_cast<uint8_t>(Missing::kArgument);
  return v;
}

Value Value::OfObject(Kind kind, Object* object) {
  Value v;
  v.kind_ = kind;
  v.object_ = object;
  return v;
}

Value Value::Function(const NativeDef* def) {
  Value v;
  v.kind_ = Kind::kFunction;
  v.function_ = def;
  return v;
}

Value Value::OfRep(Kind kind, std::shared_ptr<const Rep> rep) {
  Value v;
  v.kind_ = kind;
  v.rep_ = std::move(rep);
  return v;
}

Value Value::View(DictView view, const Value& dict) {
  Value v = OfRep(Kind::kDictView, dict.rep_);
  v.sub_ = static_cast<uint8_t>(view);
  return v;
}

const std::string& Value::text() const {
  return static_cast<const StringRep*>(rep_.get())->text;
}

size_t Value::num_chars() const {
  return static_cast<const StringRep*>(rep_.get())->num_chars;
}

const std::vector<Value>& Value::items() const {
  return static_cast<const ListRep*>(rep_.get())->items;
}

const DictRep& Value::dict() const {
  return *static_cast<const DictRep*>(rep_.get());
}

const RangeRep& Value::range() const {
  return *static_cast<const RangeRep*>(rep_.get());
}

const MethodRep& Value::method() const {
  return *static_cast<const MethodRep*>(rep_.get());
}

const IteratorRep& Value::iterator() const {
  return *static_cast<const IteratorRep*>(rep_.get());
}

int Value::depth() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<const ListRep*>(rep_.get())->depth;
    case Kind::kDict:
    case Kind::kDictView:
      return dict().depth;
    case Kind::kIterator:
      return iterator().depth;
    case Kind::kMethod:
      return 1 + method().self.depth();
    default:
      return 0;
  }
}

std::string Value::UndefinedMessage() const {
  switch (missing()) {
    case Missing::kVariable:
      return FormattedString("'%s' is undefined", text());
    case Missing::kMember: {
      const Kind owner = static_cast<Kind>(static_cast<int>(int_));
      if (owner == Kind::kNone) {
        return FormattedString("'None' has no attribute '%s'", text());
      }
      return FormattedString("'%s object' has no attribute '%s'",
                             TypeName(owner), text());
    }
    case Missing::kHint:
      return text();
    case Missing::kArgument:
      return "the argument is missing";
  }
  return "";
}

}  // namespace inlay::tmpl
