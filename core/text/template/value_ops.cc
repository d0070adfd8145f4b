#include "core/text/template/value_ops.h"

#include <cmath>

#include "absl/hash/hash.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/unicode.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

// -1, 0, 1; 2 when one is not a number. Exact between integers and floats.
int CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  }
  // An Int of more than 53 bits would round: long double holds 64, and larger
  // ones cannot be told apart from floats in any template that matters.
  const auto widen = [](const Value& v) {
    return v.is_integral() ? static_cast<long double>(v.integer())
                           : static_cast<long double>(v.real());
  };
  const long double x = widen(a);
  const long double y = widen(b);
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y;
}

absl::StatusOr<bool> EqualDicts(Budget& budget, const Value& a,
                                const Value& b) {
  if (a.dict().entries.size() != b.dict().entries.size()) return false;
  for (const auto& [key, value] : a.dict().entries) {
    INLAY_ASSIGN_OR_RETURN(const Value* other, Lookup(budget, b, key));
    if (other == nullptr) return false;
    INLAY_ASSIGN_OR_RETURN(const bool same, Equal(budget, value, *other));
    if (!same) return false;
  }
  return true;
}

bool EqualRanges(const RangeRep& a, const RangeRep& b) {
  return a.size == b.size &&
         (a.size == 0 ||
          (a.start == b.start && (a.size == 1 || a.step == b.step)));
}

}  // namespace

absl::Status UndefinedError(const Value& value) {
  return absl::InvalidArgumentError(value.UndefinedMessage());
}

absl::Status TypeError(std::string message) {
  return absl::InvalidArgumentError(std::move(message));
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
    case Kind::kDictView:
      return !value.dict().entries.empty();
    case Kind::kRange:
      return value.range().size != 0;
    default:
      return true;
  }
}

bool Identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
      return a.rep() == b.rep();
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return a.integer() == b.integer();
    case Kind::kFloat:
      return a.real() == b.real();
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kMacro:
      return a.object<Object>() == b.object<Object>();
    case Kind::kFunction:
      return a.function() == b.function();
    default:
      return a.rep() == b.rep();
  }
}

absl::StatusOr<bool> Equal(Budget& budget, const Value& a, const Value& b) {
  INLAY_RETURN_IF_ERROR(budget.Spend(1));
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      INLAY_RETURN_IF_ERROR(budget.SpendBytes(a.text().size()));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: {
      if (a.rep() == b.rep()) return true;
      if (a.items().size() != b.items().size()) return false;
      for (size_t i = 0; i < a.items().size(); ++i) {
        INLAY_ASSIGN_OR_RETURN(const bool same,
                               Equal(budget, a.items()[i], b.items()[i]));
        if (!same) return false;
      }
      return true;
    }
    case Kind::kDict:
      if (a.rep() == b.rep()) return true;
      return EqualDicts(budget, a, b);
    case Kind::kRange:
      return EqualRanges(a.range(), b.range());
    default:
      return Identical(a, b);
  }
}

absl::StatusOr<bool> Compare(Budget& budget, Order order, const Value& a,
                             const Value& b) {
  INLAY_RETURN_IF_ERROR(budget.Spend(1));
  constexpr std::string_view kNames[] = {"<", "<=", ">", ">="};
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  const auto decide = [order](int sign) {
    switch (order) {
      case Order::kLess:
        return sign == -1;
      case Order::kLessEqual:
        return sign == -1 || sign == 0;
      case Order::kGreater:
        return sign == 1;
      case Order::kGreaterEqual:
        return sign == 1 || sign == 0;
    }
    return false;
  };
  if (a.is_number() && b.is_number()) return decide(CompareNumbers(a, b));
  if (a.is_string() && b.is_string()) {
    INLAY_RETURN_IF_ERROR(budget.SpendBytes(a.text().size()));
    // UTF-8 sorts as its code points do.
    const int sign = a.text().compare(b.text());
    return decide(sign < 0 ? -1 : sign > 0);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i) {
      INLAY_ASSIGN_OR_RETURN(const bool same,
                             Equal(budget, a.items()[i], b.items()[i]));
      if (!same) return Compare(budget, order, a.items()[i], b.items()[i]);
    }
    const auto x = a.items().size();
    const auto y = b.items().size();
    return decide(x < y ? -1 : x > y);
  }
  return TypeError(FormattedString(
      "'%s' not supported between instances of '%s' and '%s'",
      kNames[static_cast<size_t>(order)], TypeName(a), TypeName(b)));
}

absl::StatusOr<bool> Less(Budget& budget, const Value& a, const Value& b) {
  return Compare(budget, Order::kLess, a, b);
}

absl::StatusOr<uint64_t> Hash(Budget& budget, const Value& key) {
  INLAY_RETURN_IF_ERROR(budget.Spend(1));
  switch (key.kind()) {
    case Kind::kString:
      INLAY_RETURN_IF_ERROR(budget.SpendBytes(key.text().size()));
      return absl::HashOf(key.text());
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      // Equal numbers of different types must meet: 1, 1.0 and true.
      return absl::HashOf(key.is_integral() ? static_cast<double>(key.integer())
                                            : key.real());
    case Kind::kTuple: {
      uint64_t hash = key.items().size();
      for (const Value& item : key.items()) {
        INLAY_ASSIGN_OR_RETURN(const uint64_t h, Hash(budget, item));
        hash = absl::HashOf(hash, h);
      }
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      return TypeError(FormattedString("unhashable type: '%s'", TypeName(key)));
    default:
      return static_cast<uint64_t>(key.kind());
  }
}

absl::StatusOr<int64_t> FindKey(Budget& budget, const DictRep& dict,
                                const Value& key, uint64_t hash) {
  if (dict.index.empty()) {
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      INLAY_ASSIGN_OR_RETURN(const bool same,
                             Equal(budget, dict.entries[i].first, key));
      if (same) return static_cast<int64_t>(i);
    }
    return int64_t{-1};
  }
  const auto [begin, end] = dict.index.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    INLAY_ASSIGN_OR_RETURN(const bool same,
                           Equal(budget, dict.entries[it->second].first, key));
    if (same) return static_cast<int64_t>(it->second);
  }
  return int64_t{-1};
}

absl::StatusOr<const Value*> Lookup(Budget& budget, const Value& dict,
                                    const Value& key) {
  INLAY_ASSIGN_OR_RETURN(const uint64_t hash, Hash(budget, key));
  INLAY_ASSIGN_OR_RETURN(const int64_t at,
                         FindKey(budget, dict.dict(), key, hash));
  return at < 0 ? nullptr
                : &dict.dict().entries[static_cast<size_t>(at)].second;
}

}  // namespace inlay::tmpl
