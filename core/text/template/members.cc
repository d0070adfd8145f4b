#include "core/text/template/members.h"

#include <algorithm>
#include <optional>

#include "core/text/template/callables.h"
#include "core/text/template/literals.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/text_search.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

constexpr std::string_view kListMutators[] = {
    "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem",
                                              "setdefault", "update"};

bool IsMutator(const Value& value, std::string_view name) {
  const auto has = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) !=
           std::end(names);
  };
  return (value.is(Kind::kList) && has(kListMutators)) ||
         (value.is(Kind::kDict) && has(kDictMutators));
}

// What Python's getattr would find; nothing when there is no such attribute.
absl::StatusOr<std::optional<Value>> FindAttribute(Env& env, const Value& value,
                                                   const std::string& name) {
  if (value.is(Kind::kNamespace)) {
    const Value* member = value.object<NamespaceObject>()->Find(name);
    if (member == nullptr) return std::nullopt;
    return *member;
  }
  if (value.is(Kind::kTuple) &&
      static_cast<const ListRep*>(value.rep())->is_group) {
    if (name == "grouper") return value.items()[0];
    if (name == "list") return value.items()[1];
  }
  if (const NativeDef* def = FindMethod(value, name)) {
    INLAY_ASSIGN_OR_RETURN(Value method, env.Method(value, def));
    return method;
  }
  if (IsMutator(value, name)) {
    return Value::UndefinedHint(
        FormattedString("access to attribute '%s' of '%s' object is unsafe.",
                        name, TypeName(value)));
  }
  return std::nullopt;
}

absl::StatusOr<Value> ItemAt(Env& env, const Value& value, Int index,
                             const Value& key) {
  INLAY_ASSIGN_OR_RETURN(const int64_t length, Length(value));
  if (index < 0) index += length;
  if (index < 0 || index >= length) {
    return Value::UndefinedMember(value.kind(), key);
  }
  const auto i = static_cast<size_t>(index);
  if (value.is(Kind::kRange)) {
    return Value::OfInt(value.range().start + value.range().step * index);
  }
  if (!value.is_string()) return value.items()[i];
  const std::string& text = value.text();
  if (value.is_ascii()) return env.String(text.substr(i, 1));
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(text.size()));
  const size_t begin = ByteOffset(text, i);
  size_t end = begin;
  NextChar(text, end);
  return env.String(text.substr(begin, end - begin));
}

bool IsIndexed(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is(Kind::kRange);
}

struct Bounds {
  int64_t start = 0, stop = 0, step = 1;
  int64_t count = 0;
};

// As Python's slice.indices, for a sequence of `length`.
absl::StatusOr<Bounds> SliceBounds(const Value& start, const Value& stop,
                                   const Value& step, int64_t length) {
  for (const Value* value : {&start, &stop, &step}) {
    if (value->is_undefined()) return UndefinedError(*value);
    if (!value->is_none() && !value->is_integral()) {
      return TypeError("slice indices must be integers or None");
    }
  }
  const Int by = step.is_none() ? 1 : step.integer();
  if (by == 0) return TypeError("slice step cannot be zero");
  const auto clip = [&](const Value& value, Int fallback) {
    if (value.is_none()) return fallback;
    Int i = value.integer();
    if (i < 0) i = i < -static_cast<Int>(length) ? -1 : i + length;
    const Int low = value.integer() < 0 && by > 0 ? 0 : (by < 0 ? -1 : 0);
    return std::clamp<Int>(i, low, by < 0 ? length - 1 : length);
  };
  const Int first = clip(start, by < 0 ? length - 1 : 0);
  const Int last = clip(stop, by < 0 ? -1 : length);
  Bounds bounds;
  bounds.start = static_cast<int64_t>(first);
  bounds.stop = static_cast<int64_t>(last);
  const Int span = by > 0 ? last - first : first - last;
  // A step longer than the sequence takes one element, whatever its size.
  const Int longest = length + 1;
  bounds.step = static_cast<int64_t>(std::clamp<Int>(by, -longest, longest));
  if (span <= 0) return bounds;
  const Int stride = bounds.step > 0 ? bounds.step : -bounds.step;
  bounds.count = static_cast<int64_t>((span + stride - 1) / stride);
  return bounds;
}

absl::StatusOr<Value> SliceText(Env& env, const Value& value,
                                const Bounds& bounds) {
  const std::string& text = value.text();
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(text.size()));
  const auto start = static_cast<size_t>(bounds.start);
  const auto count = static_cast<size_t>(bounds.count);
  if (bounds.step != 1) {
    INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(8 * text.size()));
  } else {
    if (value.is_ascii()) return env.String(text.substr(start, count));
    const size_t begin = ByteOffset(text, start);
    const size_t end =
        begin + ByteOffset(std::string_view(text).substr(begin), count);
    return env.String(text.substr(begin, end - begin));
  }
  INLAY_RETURN_IF_ERROR(
      env.budget().CheckRoom(value.num_chars() * sizeof(char32_t)));
  std::u32string chars;
  chars.reserve(value.num_chars());
  for (size_t pos = 0; pos < text.size();) chars += NextChar(text, pos);
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    AppendChar(chars[static_cast<size_t>(
                   bounds.start + static_cast<int64_t>(i) * bounds.step)],
               out);
  }
  return env.String(std::move(out));
}

}  // namespace

absl::StatusOr<Value> GetAttribute(Env& env, const Value& value,
                                   const Value& name) {
  if (value.is_undefined()) return UndefinedError(value);
  INLAY_ASSIGN_OR_RETURN(std::optional<Value> found,
                         FindAttribute(env, value, name.text()));
  if (found.has_value()) return *std::move(found);
  if (value.is(Kind::kDict)) {
    INLAY_ASSIGN_OR_RETURN(const Value* member,
                           Lookup(env.budget(), value, name));
    if (member != nullptr) return *member;
  }
  return Value::UndefinedMember(value.kind(), name);
}

absl::StatusOr<Value> GetItem(Env& env, const Value& value, const Value& key) {
  if (value.is_undefined()) return UndefinedError(value);
  if (IsIndexed(value) && key.is_integral()) {
    return ItemAt(env, value, key.integer(), key);
  }
  if (value.is(Kind::kDict) && !key.is(Kind::kList) && !key.is(Kind::kDict)) {
    INLAY_ASSIGN_OR_RETURN(const Value* member,
                           Lookup(env.budget(), value, key));
    if (member != nullptr) return *member;
  }
  if (key.is_string()) {
    INLAY_ASSIGN_OR_RETURN(std::optional<Value> found,
                           FindAttribute(env, value, key.text()));
    if (found.has_value()) return *std::move(found);
  }
  return Value::UndefinedMember(value.kind(), key);
}

absl::StatusOr<Value> Slice(Env& env, const Value& value, const Value& start,
                            const Value& stop, const Value& step) {
  if (value.is_undefined()) return UndefinedError(value);
  if (!IsIndexed(value)) {
    return TypeError(
        FormattedString("'%s' object cannot be sliced", TypeName(value)));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t length, Length(value));
  INLAY_ASSIGN_OR_RETURN(const Bounds bounds,
                         SliceBounds(start, stop, step, length));
  if (value.is_string()) return SliceText(env, value, bounds);
  if (value.is(Kind::kRange)) {
    const RangeRep& range = value.range();
    return env.Range(range.start + range.step * bounds.start,
                     range.start + range.step * bounds.stop,
                     range.step * bounds.step, bounds.count);
  }
  INLAY_RETURN_IF_ERROR(env.budget().Spend(bounds.count));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(bounds.count));
  for (int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(
        value.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return value.is(Kind::kList) ? env.List(std::move(items))
                               : env.Tuple(std::move(items));
}

absl::StatusOr<AttributePath> AttributePath::Parse(Env& env,
                                                   const Value& attribute) {
  AttributePath path;
  if (attribute.is_none()) return path;
  if (!attribute.is_string()) {
    path.parts_.push_back(attribute);
    return path;
  }
  for (const std::string_view part : SplitAt(attribute.text(), '.')) {
    INLAY_RETURN_IF_ERROR(env.budget().Spend(1));
    Int index = 0;
    const bool digits =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
          return c >= '0' && c <= '9';
        });
    if (digits && ParseInt(part, 10, index)) {
      path.parts_.push_back(Value::OfInt(index));
    } else {
      INLAY_ASSIGN_OR_RETURN(Value name, env.String(std::string(part)));
      path.parts_.push_back(std::move(name));
    }
  }
  return path;
}

absl::StatusOr<Value> AttributePath::Get(Env& env, const Value& item,
                                         const Value& fallback) const {
  Value value = item;
  for (const Value& part : parts_) {
    INLAY_ASSIGN_OR_RETURN(value, GetItem(env, value, part));
    if (value.is_undefined() && !fallback.is_none()) value = fallback;
  }
  return value;
}

}  // namespace inlay::tmpl
