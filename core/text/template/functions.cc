// The global functions of chat templates.
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "core/text/template/arithmetic.h"
#include "core/text/template/callables.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/strftime.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;

// The bound of Jinja's own sandbox.
constexpr Int kMaxRange = 100'000;

Result Range(Env& env, const Value&, const Args& args) {
  Int bounds[3] = {0, 0, 1};
  const auto& given = args.raw().positional;
  if (given.empty() || given.size() > 3 || !args.raw().named.empty()) {
    return TypeError(FormattedString("range expected 1 to 3 arguments, got %d",
                                     given.size()));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_undefined()) return UndefinedError(given[i]);
    if (!given[i].is_integral()) {
      return TypeError(
          FormattedString("'%s' object cannot be interpreted as an integer",
                          TypeName(given[i])));
    }
    bounds[given.size() == 1 ? 1 : i] = given[i].integer();
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) {
    return absl::InvalidArgumentError("range() arg 3 must not be zero");
  }
  constexpr Int kFar = static_cast<Int>(1) << 100;
  for (const Int bound : bounds) {
    if (bound > kFar || bound < -kFar) {
      return absl::InvalidArgumentError("range() of more than 100 bits");
    }
  }
  const Int span = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  const Int size = span <= 0 ? 0 : (span - 1) / stride + 1;
  if (size > kMaxRange) {
    return absl::ResourceExhaustedError(
        FormattedString("a range of %s elements, at most %s allowed",
                        IntText(size), IntText(kMaxRange)));
  }
  return env.Range(start, stop, step, static_cast<int64_t>(size));
}

// dict(mapping or pairs, **members)
Result Dict(Env& env, const Value&, const Args& args) {
  const CallArgs& raw = args.raw();
  if (raw.positional.size() > 1) {
    return TypeError(FormattedString("dict expected at most 1 argument, got %d",
                                     raw.positional.size()));
  }
  DictBuilder dict(env);
  if (raw.positional.size() == 1) {
    const Value& source = raw.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries) {
        INLAY_RETURN_IF_ERROR(dict.Set(key, value));
      }
    } else {
      INLAY_ASSIGN_OR_RETURN(const std::vector<Value> pairs,
                             ToVector(env, source));
      for (const Value& pair : pairs) {
        INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, pair));
        if (items.size() != 2) {
          return TypeError(FormattedString(
              "a dictionary is made of pairs, got %d values", items.size()));
        }
        INLAY_RETURN_IF_ERROR(dict.Set(items[0], std::move(items[1])));
      }
    }
  }
  for (const auto& [name, value] : raw.named) {
    INLAY_ASSIGN_OR_RETURN(const Value key, env.String(name));
    INLAY_RETURN_IF_ERROR(dict.Set(key, value));
  }
  return dict.Build();
}

Result Namespace(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const Value members, Dict(env, self, args));
  INLAY_ASSIGN_OR_RETURN(NamespaceObject * object, env.New<NamespaceObject>());
  for (const auto& [key, value] : members.dict().entries) {
    if (key.is_string()) object->order.emplace_back(key.text(), value);
  }
  return Value::OfObject(Kind::kNamespace, object);
}

Result RaiseException(Env& env, const Value&, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const std::string text, Str(env, args[0]));
  absl::Status raised =
      absl::InvalidArgumentError(absl::StrCat("template raised: ", text));
  raised.SetPayload(kRaisedPayload, absl::Cord(text));
  return raised;
}

Result StrftimeNow(Env& env, const Value&, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const std::string_view format,
                         args.Text(0, "", "strftime_now's format"));
  TextSink out(env.budget());
  INLAY_RETURN_IF_ERROR(Strftime(env.now(), format, out));
  INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
  return env.String(std::move(text));
}

constexpr NativeDef kFunctions[] = {
    {"range", "*", Range},
    {"dict", "*", Dict},
    {"namespace", "*", Namespace},
    {"raise_exception", "message!", RaiseException},
    {"strftime_now", "format!", StrftimeNow},
};

}  // namespace

std::span<const NativeDef> Functions() { return kFunctions; }

}  // namespace inlay::tmpl
