#include "core/text/template/callables.h"

#include <algorithm>
#include <limits>

#include "core/text/template/python_repr.h"
#include "core/text/template/text_search.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

const NativeDef* Find(std::span<const NativeDef> table, std::string_view name) {
  const auto it =
      std::find_if(table.begin(), table.end(),
                   [name](const NativeDef& def) { return def.name == name; });
  return it == table.end() ? nullptr : &*it;
}

absl::StatusOr<std::vector<Value>> Bind(const NativeDef& def,
                                        const CallArgs& args) {
  std::vector<std::string_view> params;
  if (!def.params.empty()) params = SplitAt(def.params, ' ');
  if (args.positional.size() > params.size()) {
    return TypeError(FormattedString("%s() takes at most %d arguments, got %d",
                                     def.name, params.size(),
                                     args.positional.size()));
  }
  std::vector<Value> values = args.positional;
  values.resize(params.size(), Value::NoArgument());
  for (const auto& [name, value] : args.named) {
    const auto it = std::find_if(
        params.begin(), params.end(), [&name = name](std::string_view param) {
          return param == name || (param.back() == '!' &&
                                   param.substr(0, param.size() - 1) == name);
        });
    const auto i = static_cast<size_t>(it - params.begin());
    if (it == params.end()) {
      return TypeError(
          FormattedString("%s() has no argument named '%s'", def.name, name));
    }
    if (!values[i].is_no_argument()) {
      return TypeError(FormattedString(
          "%s() got several values for argument '%s'", def.name, name));
    }
    values[i] = value;
  }
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].back() == '!' && values[i].is_no_argument()) {
      return TypeError(
          FormattedString("%s() misses its argument '%s'", def.name,
                          params[i].substr(0, params[i].size() - 1)));
    }
  }
  return values;
}

}  // namespace

absl::StatusOr<int64_t> Args::Integer(size_t i, int64_t fallback,
                                      std::string_view what) const {
  if (!has(i)) return fallback;
  const Value& value = values_[i];
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_integral()) {
    return TypeError(FormattedString("%s must be an integer, got %s", what,
                                     TypeName(value)));
  }
  constexpr Int kMax = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::clamp<Int>(value.integer(), -kMax, kMax));
}

absl::StatusOr<std::string_view> Args::Text(size_t i, std::string_view fallback,
                                            std::string_view what) const {
  if (!has(i)) return fallback;
  const Value& value = values_[i];
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_string()) {
    return TypeError(
        FormattedString("%s must be a string, got %s", what, TypeName(value)));
  }
  return std::string_view(value.text());
}

bool Args::Flag(size_t i, bool fallback) const {
  return has(i) ? Truth(values_[i]) : fallback;
}

absl::StatusOr<Value> CallNative(Env& env, const NativeDef& def,
                                 const Value& self, const CallArgs& args) {
  INLAY_RETURN_IF_ERROR(env.budget().Spend(1));
  if (def.params == "*") return def.fn(env, self, Args({}, args));
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> values, Bind(def, args));
  return def.fn(env, self, Args(std::move(values), args));
}

const NativeDef* FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), ListFilters(), SelectFilters(),
                           SortFilters(), NumberFilters()}) {
    if (const NativeDef* def = Find(table, name)) return def;
  }
  return nullptr;
}

const NativeDef* FindTest(std::string_view name) { return Find(Tests(), name); }

const NativeDef* FindMethod(const Value& self, std::string_view name) {
  if (self.is_string()) {
    if (const NativeDef* def = Find(StringMethods(), name)) return def;
    return Find(SplitMethods(), name);
  }
  return Find(ContainerMethods(self.kind()), name);
}

const NativeDef* FindFunction(std::string_view name) {
  return Find(Functions(), name);
}

absl::StatusOr<Value> ApplyFilter(Env& env, std::string_view name,
                                  const Value& value, const CallArgs& args) {
  const NativeDef* def = FindFilter(name);
  if (def == nullptr) {
    return absl::InvalidArgumentError(
        FormattedString("no filter named '%s'", name));
  }
  return CallNative(env, *def, value, args);
}

absl::StatusOr<bool> ApplyTest(Env& env, std::string_view name,
                               const Value& value, const CallArgs& args) {
  const NativeDef* def = FindTest(name);
  if (def == nullptr) {
    return absl::InvalidArgumentError(
        FormattedString("no test named '%s'", name));
  }
  INLAY_ASSIGN_OR_RETURN(const Value result,
                         CallNative(env, *def, value, args));
  return Truth(result);
}

}  // namespace inlay::tmpl
