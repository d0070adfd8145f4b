// Filters that apply another filter or a test to every element.
#include "core/text/template/callables.h"
#include "core/text/template/members.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;

Result MapAttribute(Env& env, const Value& self, const CallArgs& raw) {
  Value attribute;
  Value fallback;
  for (const auto& [name, value] : raw.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      fallback = value;
    } else {
      return TypeError(
          FormattedString("map() has no argument named '%s'", name));
    }
  }
  INLAY_ASSIGN_OR_RETURN(const AttributePath path,
                         AttributePath::Parse(env, attribute));
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  for (Value& item : items) {
    INLAY_ASSIGN_OR_RETURN(item, path.Get(env, item, fallback));
  }
  return env.Iterator(std::move(items));
}

// The name of a filter or test that came as an argument.
absl::StatusOr<std::string> NameArgument(const Value& value) {
  if (value.is_string()) return value.text();
  return TypeError(
      FormattedString("the name of a filter or test must be a string, got %s",
                      TypeName(value)));
}

Result Map(Env& env, const Value& self, const Args& args) {
  const CallArgs& raw = args.raw();
  if (!Truth(self)) return env.Iterator({});
  if (raw.positional.empty()) {
    for (const auto& [name, value] : raw.named) {
      if (name == "attribute") return MapAttribute(env, self, raw);
    }
    return TypeError("map requires a filter argument");
  }
  INLAY_ASSIGN_OR_RETURN(const std::string name,
                         NameArgument(raw.positional[0]));
  CallArgs rest;
  rest.positional.assign(raw.positional.begin() + 1, raw.positional.end());
  rest.named = raw.named;
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  for (Value& item : items) {
    INLAY_ASSIGN_OR_RETURN(item, ApplyFilter(env, name, item, rest));
  }
  return env.Iterator(std::move(items));
}

// select, reject, selectattr and rejectattr in one: keeps the elements whose
// test (truth, without one) gives `wanted`.
Result Filter(Env& env, const Value& self, const CallArgs& raw, bool wanted,
              bool by_attribute) {
  if (!Truth(self)) return env.Iterator({});
  const size_t offset = by_attribute ? 1 : 0;
  if (raw.positional.size() < offset) {
    return TypeError("Missing parameter for attribute name");
  }
  INLAY_ASSIGN_OR_RETURN(
      const AttributePath path,
      AttributePath::Parse(env, by_attribute ? raw.positional[0] : Value()));
  std::string test;
  CallArgs rest;
  const bool has_test = raw.positional.size() > offset;
  if (has_test) {
    INLAY_ASSIGN_OR_RETURN(test, NameArgument(raw.positional[offset]));
    rest.positional.assign(
        raw.positional.begin() + static_cast<ptrdiff_t>(offset) + 1,
        raw.positional.end());
    rest.named = raw.named;
  }
  INLAY_ASSIGN_OR_RETURN(ValueIterator it, ValueIterator::Over(env, self));
  std::vector<Value> kept;
  Value item;
  while (true) {
    INLAY_ASSIGN_OR_RETURN(const bool more, it.Next(item));
    if (!more) break;
    INLAY_ASSIGN_OR_RETURN(const Value subject, path.Get(env, item));
    bool passes = Truth(subject);
    if (has_test) {
      INLAY_ASSIGN_OR_RETURN(passes, ApplyTest(env, test, subject, rest));
    }
    if (passes == wanted) kept.push_back(item);
  }
  return env.Iterator(std::move(kept));
}

template <bool kWanted, bool kByAttribute>
Result FilterBy(Env& env, const Value& self, const Args& args) {
  return Filter(env, self, args.raw(), kWanted, kByAttribute);
}

constexpr NativeDef kFilters[] = {
    {"map", "*", Map},
    {"reject", "*", FilterBy<false, false>},
    {"rejectattr", "*", FilterBy<false, true>},
    {"select", "*", FilterBy<true, false>},
    {"selectattr", "*", FilterBy<true, true>},
};

}  // namespace

std::span<const NativeDef> SelectFilters() { return kFilters; }

}  // namespace inlay::tmpl
