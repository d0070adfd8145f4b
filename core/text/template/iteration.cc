// The part of value_ops.h that walks containers.
#include "core/text/template/python_repr.h"
#include "core/text/template/text_search.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return int64_t{0};
    case Kind::kString:
      return static_cast<int64_t>(value.num_chars());
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
    case Kind::kDictView:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kRange:
      return value.range().size;
    default:
      return TypeError(
          FormattedString("object of type '%s' has no len()", TypeName(value)));
  }
}

absl::StatusOr<ValueIterator> ValueIterator::Over(Env& env,
                                                  const Value& value) {
  if (!IsIterable(value)) {
    return TypeError(
        FormattedString("'%s' object is not iterable", TypeName(value)));
  }
  return ValueIterator(env, value);
}

int64_t ValueIterator::known_length() const {
  if (value_.is(Kind::kIterator)) return -1;
  return *Length(value_);
}

absl::StatusOr<bool> ValueIterator::Next(Value& out) {
  INLAY_RETURN_IF_ERROR(env_->budget().Spend(1));
  switch (value_.kind()) {
    case Kind::kString: {
      const std::string& text = value_.text();
      if (pos_ >= text.size()) return false;
      const size_t begin = pos_;
      NextChar(text, pos_);
      INLAY_ASSIGN_OR_RETURN(out,
                             env_->String(text.substr(begin, pos_ - begin)));
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (pos_ >= value_.items().size()) return false;
      out = value_.items()[pos_++];
      return true;
    case Kind::kDict:
    case Kind::kDictView: {
      const auto& entries = value_.dict().entries;
      if (pos_ >= entries.size()) return false;
      const auto& [key, member] = entries[pos_++];
      if (value_.is(Kind::kDict) || value_.view() == DictView::kKeys) {
        out = key;
      } else if (value_.view() == DictView::kValues) {
        out = member;
      } else {
        INLAY_ASSIGN_OR_RETURN(out, env_->Tuple({key, member}));
      }
      return true;
    }
    case Kind::kRange: {
      const RangeRep& range = value_.range();
      if (pos_ >= static_cast<size_t>(range.size)) return false;
      out = Value::OfInt(range.start + range.step * static_cast<Int>(pos_++));
      return true;
    }
    case Kind::kIterator: {
      const IteratorRep& iterator = value_.iterator();
      if (iterator.next >= iterator.items.size()) return false;
      out = iterator.items[iterator.next++];
      return true;
    }
    default:  // undefined: empty
      return false;
  }
}

absl::StatusOr<std::vector<Value>> ToVector(Env& env, const Value& value) {
  INLAY_ASSIGN_OR_RETURN(ValueIterator it, ValueIterator::Over(env, value));
  std::vector<Value> items;
  if (const int64_t n = it.known_length(); n > 0) {
    INLAY_RETURN_IF_ERROR(
        env.budget().CheckRoom(static_cast<size_t>(n) * sizeof(Value)));
    items.reserve(static_cast<size_t>(n));
  }
  Value item;
  while (true) {
    INLAY_ASSIGN_OR_RETURN(const bool more, it.Next(item));
    if (!more) return items;
    items.push_back(std::move(item));
  }
}

absl::StatusOr<bool> Contains(Env& env, const Value& container,
                              const Value& item) {
  Budget& budget = env.budget();
  if (container.is_string()) {
    if (!item.is_string()) {
      return TypeError(FormattedString(
          "'in <string>' requires string as left operand, not %s",
          TypeName(item)));
    }
    INLAY_RETURN_IF_ERROR(budget.SpendBytes(container.text().size()));
    return FindText(container.text(), item.text()) != std::string::npos;
  }
  if (container.is(Kind::kDict) ||
      (container.is(Kind::kDictView) && container.view() == DictView::kKeys)) {
    INLAY_ASSIGN_OR_RETURN(const Value* found, Lookup(budget, container, item));
    return found != nullptr;
  }
  if (!IsIterable(container)) {
    return TypeError(FormattedString("argument of type '%s' is not iterable",
                                     TypeName(container)));
  }
  INLAY_ASSIGN_OR_RETURN(ValueIterator it, ValueIterator::Over(env, container));
  Value member;
  while (true) {
    INLAY_ASSIGN_OR_RETURN(const bool more, it.Next(member));
    if (!more) return false;
    INLAY_ASSIGN_OR_RETURN(const bool same, Equal(budget, member, item));
    if (same) return true;
  }
}

const Value* LookupText(const Value& dict, std::string_view key) {
  for (const auto& [name, member] : dict.dict().entries) {
    if (name.is_string() && name.text() == key) return &member;
  }
  return nullptr;
}

}  // namespace inlay::tmpl
