// Attributes, subscripts and slices of values, with the sandbox's rules: no
// attribute that begins Python's internals, no method that changes a container.
#ifndef INLAY_CORE_TEXT_TEMPLATE_MEMBERS_H_
#define INLAY_CORE_TEXT_TEMPLATE_MEMBERS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/text/template/env.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

// value.name: methods first, then members. What is missing is undefined; a
// member of an undefined value is INVALID_ARGUMENT.
absl::StatusOr<Value> GetAttribute(Env& env, const Value& value,
                                   const Value& name);
// value[key]: members first, then methods.
absl::StatusOr<Value> GetItem(Env& env, const Value& value, const Value& key);
// value[start:stop:step]; none for those left out.
absl::StatusOr<Value> Slice(Env& env, const Value& value, const Value& start,
                            const Value& stop, const Value& step);

// What the `attribute` argument of filters names: "a.b.0", or an integer.
class AttributePath {
 public:
  // None means the item itself.
  static absl::StatusOr<AttributePath> Parse(Env& env, const Value& attribute);
  // `fallback` (unless it is none) replaces what is undefined on the way.
  absl::StatusOr<Value> Get(Env& env, const Value& item,
                            const Value& fallback = Value()) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_MEMBERS_H_
