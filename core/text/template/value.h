// What a template computes with: Python's values as far as chat templates can
// see them. Strings and containers are immutable and shared; what can change
// (namespaces, loops, iterators) lives in the rendering's arena, so no value
// can form an owning cycle. Knows nothing of the language's syntax.
#ifndef INLAY_CORE_TEXT_TEMPLATE_VALUE_H_
#define INLAY_CORE_TEXT_TEMPLATE_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/template/budget.h"

namespace inlay::tmpl {

// Wide enough for every JSON integer of 64 bits, signed or not; wider results
// are errors.
__extension__ typedef __int128 Int;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,  // dict.keys(), .values(), .items()
  kRange,
  kIterator,  // what generators and reversed() give: consumed once
  kNamespace,
  kLoop,
  kMacro,
  kMethod,    // a method bound to its receiver
  kFunction,  // a global function
};

class Value;
struct NativeDef;

// Shared immutable payload; refunds its bytes when the last value drops it.
struct Rep {
  Rep() = default;
  Rep(const Rep&) = delete;
  Rep& operator=(const Rep&) = delete;
  virtual ~Rep() {
    if (account != nullptr) account->Refund(charged_bytes);
  }
  Budget* account = nullptr;  // null for the constants of a parsed template
  size_t charged_bytes = 0;
};

// Owned by the rendering's arena.
struct Object {
  virtual ~Object() = default;
};

enum class DictView : uint8_t { kKeys, kValues, kItems };

// Why a value is undefined; decides the message of the error it will cause.
enum class Missing : uint8_t { kVariable, kMember, kHint, kArgument };

class Value {
 public:
  Value() = default;  // none
  static Value Bool(bool b);
  static Value OfInt(Int i);
  static Value OfFloat(double f);
  // Uncharged: for constants. Everything else comes from Env.
  static Value Constant(std::string text);
  static Value UndefinedVariable(const Value& name);
  static Value UndefinedMember(Kind owner, const Value& key);
  static Value UndefinedHint(std::string hint);
  // An argument that the caller left out.
  static Value NoArgument();
  static Value OfObject(Kind kind, Object* object);
  static Value Function(const NativeDef* def);
  static Value OfRep(Kind kind, std::shared_ptr<const Rep> rep);
  static Value View(DictView view, const Value& dict);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const {
    return kind_ == Kind::kList || kind_ == Kind::kTuple;
  }
  bool is_integral() const {
    return kind_ == Kind::kInt || kind_ == Kind::kBool;
  }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_no_argument() const {
    return is_undefined() && missing() == Missing::kArgument;
  }

  bool boolean() const { return int_ != 0; }
  Int integer() const { return int_; }  // a bool counts as 0 or 1
  double real() const {
    return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_);
  }
  const std::string& text() const;
  size_t num_chars() const;
  bool is_ascii() const { return num_chars() == text().size(); }
  const std::vector<Value>& items() const;
  const struct DictRep& dict() const;  // also of a dict view
  const struct RangeRep& range() const;
  const struct MethodRep& method() const;
  const struct IteratorRep& iterator() const;
  DictView view() const { return static_cast<DictView>(sub_); }
  Missing missing() const { return static_cast<Missing>(sub_); }
  template <typename T>
  T* object() const {
    return static_cast<T*>(object_);
  }
  const NativeDef* function() const { return function_; }
  const Rep* rep() const { return rep_.get(); }
  // 0 for scalars; a container is one above its deepest member.
  int depth() const;
  // What using this undefined value reports: "'x' is undefined".
  std::string UndefinedMessage() const;

 private:
  Kind kind_ = Kind::kNone;
  uint8_t sub_ = 0;
  union {
    Int int_ = 0;
    double float_;
    Object* object_;
    const NativeDef* function_;
  };
  std::shared_ptr<const Rep> rep_;
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_VALUE_H_
