// Filters that order, group or compare elements.
#include <algorithm>

#include "core/text/template/arithmetic.h"
#include "core/text/template/callables.h"
#include "core/text/template/members.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/text_search.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;

struct Keyed {
  Value key;
  Value item;
};

// Stable, and sound even where comparisons fail half-way: std::stable_sort
// promises nothing about a comparator that cannot answer.
absl::Status MergeSort(Budget& budget, std::vector<Keyed>& items,
                       bool descending) {
  std::vector<Keyed> merged(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const Value& a = items[right].key;
          const Value& b = items[left].key;
          INLAY_ASSIGN_OR_RETURN(
              take_right, descending ? Less(budget, b, a) : Less(budget, a, b));
        }
        merged[out] = std::move(items[take_right ? right++ : left++]);
      }
    }
    std::swap(items, merged);
  }
  return absl::OkStatus();
}

Result IgnoreCase(Env& env, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(8 * value.text().size()));
  return env.String(ToLower(value.text()));
}

absl::StatusOr<std::vector<Keyed>> WithKeys(Env& env, const Value& self,
                                            const AttributePath& path,
                                            bool case_sensitive,
                                            const Value& fallback = Value()) {
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    INLAY_ASSIGN_OR_RETURN(Value key, path.Get(env, item, fallback));
    INLAY_ASSIGN_OR_RETURN(key, IgnoreCase(env, key, case_sensitive));
    keyed.push_back({std::move(key), std::move(item)});
  }
  return keyed;
}

std::vector<Value> ItemsOf(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

// By the attributes of a comma-separated list, as one list-valued key.
Result Sort(Env& env, const Value& self, const Args& args) {
  const bool case_sensitive = args.Flag(1, false);
  std::vector<AttributePath> paths;
  const Value attribute = args.has(2) ? args[2] : Value();
  if (attribute.is_string()) {
    for (const std::string_view part : SplitAt(attribute.text(), ',')) {
      INLAY_ASSIGN_OR_RETURN(const Value name, env.String(std::string(part)));
      INLAY_ASSIGN_OR_RETURN(AttributePath path,
                             AttributePath::Parse(env, name));
      paths.push_back(std::move(path));
    }
  } else {
    INLAY_ASSIGN_OR_RETURN(AttributePath path,
                           AttributePath::Parse(env, attribute));
    paths.push_back(std::move(path));
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      INLAY_ASSIGN_OR_RETURN(const Value key, path.Get(env, item));
      INLAY_ASSIGN_OR_RETURN(Value folded,
                             IgnoreCase(env, key, case_sensitive));
      keys.push_back(std::move(folded));
    }
    INLAY_ASSIGN_OR_RETURN(Value key, env.List(std::move(keys)));
    keyed.push_back({std::move(key), std::move(item)});
  }
  INLAY_RETURN_IF_ERROR(MergeSort(env.budget(), keyed, args.Flag(0, false)));
  return env.List(ItemsOf(std::move(keyed)));
}

Result DictSort(Env& env, const Value& self, const Args& args) {
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is(Kind::kDict)) {
    return TypeError(
        FormattedString("dictsort needs a mapping, got %s", TypeName(self)));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string_view by,
                         args.Text(1, "key", "dictsort's by"));
  if (by != "key" && by != "value") {
    return TypeError("You can only sort by either \"key\" or \"value\"");
  }
  INLAY_ASSIGN_OR_RETURN(
      const AttributePath path,
      AttributePath::Parse(env, Value::OfInt(by == "key" ? 0 : 1)));
  INLAY_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                         WithKeys(env, Value::View(DictView::kItems, self),
                                  path, args.Flag(0, false)));
  INLAY_RETURN_IF_ERROR(MergeSort(env.budget(), keyed, args.Flag(2, false)));
  return env.List(ItemsOf(std::move(keyed)));
}

Result Unique(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(
      const AttributePath path,
      AttributePath::Parse(env, args.has(1) ? args[1] : Value()));
  INLAY_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                         WithKeys(env, self, path, args.Flag(0, false)));
  // The keys of a dictionary are the set of those seen.
  DictBuilder seen(env);
  for (Keyed& entry : keyed) {
    INLAY_RETURN_IF_ERROR(seen.SetIfNew(entry.key, std::move(entry.item)));
  }
  INLAY_ASSIGN_OR_RETURN(const Value firsts, seen.Build());
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items,
                         ToVector(env, Value::View(DictView::kValues, firsts)));
  return env.Iterator(std::move(items));
}

Result GroupBy(Env& env, const Value& self, const Args& args) {
  const Value fallback = args.has(1) ? args[1] : Value();
  INLAY_ASSIGN_OR_RETURN(const AttributePath path,
                         AttributePath::Parse(env, args[0]));
  INLAY_ASSIGN_OR_RETURN(
      std::vector<Keyed> keyed,
      WithKeys(env, self, path, args.Flag(2, false), fallback));
  INLAY_RETURN_IF_ERROR(MergeSort(env.budget(), keyed, false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin + 1;
    for (; end < keyed.size(); ++end) {
      INLAY_ASSIGN_OR_RETURN(
          const bool same,
          Equal(env.budget(), keyed[begin].key, keyed[end].key));
      if (!same) break;
    }
    std::vector<Value> members;
    for (size_t i = begin; i < end; ++i) members.push_back(keyed[i].item);
    // The key as the first member spells it, not in lower case.
    INLAY_ASSIGN_OR_RETURN(Value grouper, path.Get(env, members[0], fallback));
    INLAY_ASSIGN_OR_RETURN(Value list, env.List(std::move(members)));
    INLAY_ASSIGN_OR_RETURN(Value group,
                           env.Group(std::move(grouper), std::move(list)));
    groups.push_back(std::move(group));
    begin = end;
  }
  return env.List(std::move(groups));
}

template <bool kLargest>
Result Extreme(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(
      const AttributePath path,
      AttributePath::Parse(env, args.has(1) ? args[1] : Value()));
  INLAY_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                         WithKeys(env, self, path, args.Flag(0, false)));
  if (keyed.empty()) {
    return Value::UndefinedHint("No aggregated item, sequence was empty.");
  }
  const Keyed* best = &keyed[0];
  for (size_t i = 1; i < keyed.size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(
        const bool better,
        Compare(env.budget(), kLargest ? Order::kGreater : Order::kLess,
                keyed[i].key, best->key));
    if (better) best = &keyed[i];
  }
  return best->item;
}

Result Sum(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(
      const AttributePath path,
      AttributePath::Parse(env, args.has(0) ? args[0] : Value()));
  Value total = args.has(1) ? args[1] : Value::OfInt(0);
  if (total.is_string()) return TypeError("sum() can't sum strings");
  INLAY_ASSIGN_OR_RETURN(std::vector<Value> items, ToVector(env, self));
  for (const Value& item : items) {
    INLAY_ASSIGN_OR_RETURN(const Value addend, path.Get(env, item));
    INLAY_ASSIGN_OR_RETURN(total, Apply(env, BinaryOp::kAdd, total, addend));
  }
  return total;
}

constexpr NativeDef kFilters[] = {
    {"dictsort", "case_sensitive by reverse", DictSort},
    {"groupby", "attribute! default case_sensitive", GroupBy},
    {"max", "case_sensitive attribute", Extreme<true>},
    {"min", "case_sensitive attribute", Extreme<false>},
    {"sort", "reverse case_sensitive attribute", Sort},
    {"sum", "attribute start", Sum},
    {"unique", "case_sensitive attribute", Unique},
};

}  // namespace

std::span<const NativeDef> SortFilters() { return kFilters; }

}  // namespace inlay::tmpl
