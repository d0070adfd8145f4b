// Filters, tests, methods and global functions as table rows, and the binding
// of call arguments to their parameters. Knows nothing of syntax or scopes.
#ifndef INLAY_CORE_TEXT_TEMPLATE_CALLABLES_H_
#define INLAY_CORE_TEXT_TEMPLATE_CALLABLES_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/text/template/env.h"
#include "core/text/template/value.h"

namespace inlay::tmpl {

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments in the order of the parameters; those left out are NoArgument().
class Args {
 public:
  Args(std::vector<Value> values, const CallArgs& raw)
      : values_(std::move(values)), raw_(raw) {}
  bool has(size_t i) const {
    return i < values_.size() && !values_[i].is_no_argument();
  }
  const Value& operator[](size_t i) const { return values_[i]; }
  // For the rows that take anything ("*").
  const CallArgs& raw() const { return raw_; }

  // The argument, or the default when it was left out; INVALID_ARGUMENT when it
  // is of another type. `what` names it in the message.
  absl::StatusOr<int64_t> Integer(size_t i, int64_t fallback,
                                  std::string_view what) const;
  absl::StatusOr<std::string_view> Text(size_t i, std::string_view fallback,
                                        std::string_view what) const;
  bool Flag(size_t i, bool fallback) const;

 private:
  std::vector<Value> values_;
  const CallArgs& raw_;
};

using NativeFn = absl::StatusOr<Value> (*)(Env& env, const Value& self,
                                           const Args& args);

// `params`: names in order, separated by spaces, required ones with a '!'; "*"
// takes anything.
struct NativeDef {
  std::string_view name;
  std::string_view params;
  NativeFn fn;
};

absl::StatusOr<Value> CallNative(Env& env, const NativeDef& def,
                                 const Value& self, const CallArgs& args);

// nullptr when there is none of that name.
const NativeDef* FindFilter(std::string_view name);
const NativeDef* FindTest(std::string_view name);
const NativeDef* FindMethod(const Value& self, std::string_view name);
const NativeDef* FindFunction(std::string_view name);

// By name, as map('upper') and select('even') call them; an unknown name is
// INVALID_ARGUMENT.
absl::StatusOr<Value> ApplyFilter(Env& env, std::string_view name,
                                  const Value& value, const CallArgs& args);
absl::StatusOr<bool> ApplyTest(Env& env, std::string_view name,
                               const Value& value, const CallArgs& args);

// The tables, by theme.
std::span<const NativeDef> TextFilters();
std::span<const NativeDef> ListFilters();
std::span<const NativeDef> SelectFilters();
std::span<const NativeDef> SortFilters();
std::span<const NativeDef> NumberFilters();
std::span<const NativeDef> Tests();
std::span<const NativeDef> StringMethods();
std::span<const NativeDef> SplitMethods();
std::span<const NativeDef> ContainerMethods(Kind kind);
std::span<const NativeDef> Functions();

// The payload of the status by which raise_exception ends a rendering.
inline constexpr char kRaisedPayload[] = "inlay/template_raised_exception";

}  // namespace inlay::tmpl

#endif  // INLAY_CORE_TEXT_TEMPLATE_CALLABLES_H_
