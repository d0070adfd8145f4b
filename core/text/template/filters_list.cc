// Filters on sequences and mappings, other than those that select or sort.
#include <algorithm>

#include "core/text/template/callables.h"
#include "core/text/template/members.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;

Result LengthFilter(Env&, const Value& self, const Args&) {
  INLAY_ASSIGN_OR_RETURN(const int64_t length, Length(self));
  return Value::OfInt(length);
}

Result Default(Env& env, const Value& self, const Args& args) {
  if (!self.is_undefined() && (!args.Flag(1, false) || Truth(self))) {
    return self;
  }
  if (args.has(0)) return args[0];
  return env.String("");
}

Result List(Env& env, const Value& self, const Args&) {
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  return env.List(std::move(items));
}

Result First(Env& env, const Value& self, const Args&) {
  INLAY_ASSIGN_OR_RETURN(ValueIterator it, ValueIterator::Over(env, self));
  Value item;
  INLAY_ASSIGN_OR_RETURN(const bool more, it.Next(item));
  if (more) return item;
  return Value::UndefinedHint("No first item, sequence was empty.");
}

absl::Status CheckReversible(const Value& value) {
  if (IsIterable(value) && !value.is(Kind::kIterator)) return absl::OkStatus();
  return TypeError(
      FormattedString("'%s' object is not reversible", TypeName(value)));
}

Result Last(Env& env, const Value& self, const Args&) {
  INLAY_RETURN_IF_ERROR(CheckReversible(self));
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  if (!items.empty()) return items.back();
  return Value::UndefinedHint("No last item, sequence was empty.");
}

Result Reverse(Env& env, const Value& self, const Args&) {
  if (self.is_string()) {
    return Slice(env, self, Value(), Value(), Value::OfInt(-1));
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  std::reverse(items.begin(), items.end());
  if (!CheckReversible(self).ok()) return env.List(std::move(items));
  return env.Iterator(std::move(items), "reversed");
}

Result Join(Env& env, const Value& self, const Args& args) {
  std::string_view separator;
  Value separator_text;
  if (args.has(0)) {
    INLAY_ASSIGN_OR_RETURN(separator_text, StrValue(env, args[0]));
    separator = separator_text.text();
  }
  INLAY_ASSIGN_OR_RETURN(
      const AttributePath path,
      AttributePath::Parse(env, args.has(1) ? args[1] : Value()));
  INLAY_ASSIGN_OR_RETURN(ValueIterator it, ValueIterator::Over(env, self));
  TextSink out(env.budget());
  Value item;
  for (bool first = true;; first = false) {
    INLAY_ASSIGN_OR_RETURN(const bool more, it.Next(item));
    if (!more) break;
    INLAY_ASSIGN_OR_RETURN(item, path.Get(env, item));
    if (!first) out.Append(separator);
    INLAY_RETURN_IF_ERROR(AppendStr(env, item, out));
  }
  INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
  return env.String(std::move(text));
}

Result Items(Env& env, const Value& self, const Args&) {
  if (self.is_undefined()) return env.Iterator({});
  if (!self.is(Kind::kDict)) {
    return TypeError("Can only get item pairs from a mapping.");
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items,
                         ToVector(env, Value::View(DictView::kItems, self)));
  return env.Iterator(std::move(items));
}

// Refuses fillings that the budget could not hold.
absl::Status CheckFill(Env& env, int64_t count) {
  const size_t room = env.budget().room_bytes() / sizeof(Value);
  if (count > 0 && static_cast<uint64_t>(count) > room) {
    return absl::ResourceExhaustedError(
        FormattedString("%d items asked for, memory for %d left", count, room));
  }
  return count > 0 ? env.budget().Spend(count) : absl::OkStatus();
}

Result Batch(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const int64_t count,
                         args.Integer(0, 1, "batch's linecount"));
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  std::vector<Value> batches;
  std::vector<Value> batch;
  const auto full = [&] { return static_cast<int64_t>(batch.size()) == count; };
  for (Value& item : items) {
    if (full()) {
      INLAY_ASSIGN_OR_RETURN(Value list, env.List(std::move(batch)));
      batches.push_back(std::move(list));
      batch.clear();
    }
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    const auto missing = count - static_cast<int64_t>(batch.size());
    if (args.has(1) && !args[1].is_none() && missing > 0) {
      INLAY_RETURN_IF_ERROR(CheckFill(env, missing));
      batch.resize(static_cast<size_t>(count), args[1]);
    }
    INLAY_ASSIGN_OR_RETURN(Value list, env.List(std::move(batch)));
    batches.push_back(std::move(list));
  }
  return env.Iterator(std::move(batches));
}

Result SliceFilter(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const int64_t slices,
                         args.Integer(0, 1, "slice's number of slices"));
  INLAY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToVector(env, self));
  if (slices == 0) return absl::InvalidArgumentError("division by zero");
  INLAY_RETURN_IF_ERROR(CheckFill(env, slices));
  const auto length = static_cast<int64_t>(items.size());
  std::vector<Value> out;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const bool extra = i < length % slices;
    const int64_t end = begin + length / slices + (extra ? 1 : 0);
    std::vector<Value> slice(items.begin() + begin, items.begin() + end);
    if (args.has(1) && !args[1].is_none() && !extra) slice.push_back(args[1]);
    INLAY_ASSIGN_OR_RETURN(Value list, env.List(std::move(slice)));
    out.push_back(std::move(list));
    begin = end;
  }
  return env.Iterator(std::move(out));
}

Result Attr(Env& env, const Value& self, const Args& args) {
  if (!args[0].is_string()) return TypeError("attr needs a name");
  if (self.is(Kind::kDict) && FindMethod(self, args[0].text()) == nullptr) {
    return Value::UndefinedMember(self.kind(), args[0]);
  }
  return GetAttribute(env, self, args[0]);
}

constexpr NativeDef kFilters[] = {
    {"attr", "name!", Attr},
    {"batch", "linecount! fill_with", Batch},
    {"count", "", LengthFilter},
    {"d", "default_value boolean", Default},
    {"default", "default_value boolean", Default},
    {"first", "", First},
    {"items", "", Items},
    {"join", "d attribute", Join},
    {"last", "", Last},
    {"length", "", LengthFilter},
    {"list", "", List},
    {"reverse", "", Reverse},
    {"slice", "slices! fill_with", SliceFilter},
};

}  // namespace

std::span<const NativeDef> ListFilters() { return kFilters; }

}  // namespace inlay::tmpl
