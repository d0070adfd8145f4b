#include "core/text/template/python_repr.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/text/template/callables.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

// Namespaces can contain themselves, so the depth of the values is no bound.
constexpr int kMaxReprDepth = 160;

absl::Status AppendReprAt(Env& env, const Value& value, int depth,
                          TextSink& out);

absl::Status AppendItems(Env& env, const std::vector<Value>& items, int depth,
                         TextSink& out) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.Append(", ");
    first = false;
    INLAY_RETURN_IF_ERROR(AppendReprAt(env, item, depth + 1, out));
  }
  return absl::OkStatus();
}

absl::Status AppendDict(Env& env, const DictRep& dict, int depth,
                        TextSink& out) {
  out.Append('{');
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out.Append(", ");
    first = false;
    INLAY_RETURN_IF_ERROR(AppendReprAt(env, key, depth + 1, out));
    out.Append(": ");
    INLAY_RETURN_IF_ERROR(AppendReprAt(env, value, depth + 1, out));
  }
  out.Append('}');
  return absl::OkStatus();
}

absl::Status AppendView(Env& env, const Value& view, int depth, TextSink& out) {
  out.Append(TypeName(view));
  out.Append("([");
  bool first = true;
  for (const auto& [key, value] : view.dict().entries) {
    if (!first) out.Append(", ");
    first = false;
    const bool items = view.view() == DictView::kItems;
    if (items) out.Append('(');
    if (view.view() != DictView::kValues) {
      INLAY_RETURN_IF_ERROR(AppendReprAt(env, key, depth + 1, out));
    }
    if (items) out.Append(", ");
    if (view.view() != DictView::kKeys) {
      INLAY_RETURN_IF_ERROR(AppendReprAt(env, value, depth + 1, out));
    }
    if (items) out.Append(')');
  }
  out.Append("])");
  return absl::OkStatus();
}

absl::Status AppendNamespace(Env& env, const Value& value, int depth,
                             TextSink& out) {
  out.Append("<Namespace {");
  bool first = true;
  for (const auto& [name, member] : value.object<NamespaceObject>()->order) {
    if (!first) out.Append(", ");
    first = false;
    AppendStringRepr(name, out);
    out.Append(": ");
    INLAY_RETURN_IF_ERROR(AppendReprAt(env, member, depth + 1, out));
  }
  out.Append("}>");
  return absl::OkStatus();
}

void AppendRange(const RangeRep& range, TextSink& out) {
  out.Append(
      absl::StrCat("range(", IntText(range.start), ", ", IntText(range.stop)));
  if (range.step != 1) out.Append(absl::StrCat(", ", IntText(range.step)));
  out.Append(')');
}

absl::Status AppendContainer(Env& env, const Value& value, int depth,
                             TextSink& out) {
  switch (value.kind()) {
    case Kind::kList:
      out.Append('[');
      INLAY_RETURN_IF_ERROR(AppendItems(env, value.items(), depth, out));
      out.Append(']');
      return absl::OkStatus();
    case Kind::kTuple:
      out.Append('(');
      INLAY_RETURN_IF_ERROR(AppendItems(env, value.items(), depth, out));
      out.Append(value.items().size() == 1 ? ",)" : ")");
      return absl::OkStatus();
    case Kind::kDict:
      return AppendDict(env, value.dict(), depth, out);
    case Kind::kDictView:
      return AppendView(env, value, depth, out);
    case Kind::kNamespace:
      return AppendNamespace(env, value, depth, out);
    default:  // Python would print an address; templates cannot rely on one.
      out.Append('<');
      out.Append(TypeName(value));
      out.Append('>');
      return absl::OkStatus();
  }
}

absl::Status AppendReprAt(Env& env, const Value& value, int depth,
                          TextSink& out) {
  INLAY_RETURN_IF_ERROR(env.budget().Spend(1));
  if (out.full()) return out.status();
  if (depth > kMaxReprDepth) {
    return absl::ResourceExhaustedError(
        FormattedString("printing values nested deeper than the %d levels "
                        "allowed",
                        kMaxReprDepth));
  }
  switch (value.kind()) {
    case Kind::kUndefined:
      out.Append("Undefined");
      return absl::OkStatus();
    case Kind::kNone:
      out.Append("None");
      return absl::OkStatus();
    case Kind::kBool:
      out.Append(value.boolean() ? "True" : "False");
      return absl::OkStatus();
    case Kind::kInt:
      out.Append(IntText(value.integer()));
      return absl::OkStatus();
    case Kind::kFloat:
      out.Append(FloatText(value.real()));
      return absl::OkStatus();
    case Kind::kString:
      AppendStringRepr(value.text(), out);
      return absl::OkStatus();
    case Kind::kRange:
      AppendRange(value.range(), out);
      return absl::OkStatus();
    default:
      return AppendContainer(env, value, depth, out);
  }
}

}  // namespace

std::string_view TypeName(Kind kind) {
  constexpr std::string_view kNames[] = {
      "Undefined", "NoneType",    "bool",  "int",        "float",   "str",
      "list",      "tuple",       "dict",  "dict_items", "range",   "generator",
      "Namespace", "LoopContext", "Macro", "method",     "function"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view TypeName(const Value& value) {
  if (value.is(Kind::kDictView)) {
    return value.view() == DictView::kKeys     ? "dict_keys"
           : value.view() == DictView::kValues ? "dict_values"
                                               : "dict_items";
  }
  if (value.is(Kind::kIterator)) {
    return value.iterator().type_name;
  }
  return TypeName(value.kind());
}

std::string IntText(Int value) {
  char digits[48];
  char* end = digits + sizeof(digits);
  char* p = end;
  // Through unsigned, because the least value has no positive twin.
  auto rest = static_cast<unsigned __int128>(value);
  if (value < 0) rest = ~rest + 1;
  do {
    *--p = static_cast<char>('0' + static_cast<int>(rest % 10));
    rest /= 10;
  } while (rest != 0);
  if (value < 0) *--p = '-';
  return std::string(p, static_cast<size_t>(end - p));
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 std::chars_format::scientific)
                       .ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent =
      text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const int n = static_cast<int>(digits.size());
  // repr() switches to the exponent form at 1e16 and below 1e-4.
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    out += FormattedString("e%c%02d", exponent < 0 ? '-' : '+',
                           std::abs(exponent));
  } else if (exponent < 0) {
    out += "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else if (n <= exponent + 1) {
    out +=
        digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  } else {
    const auto point = static_cast<size_t>(exponent + 1);
    out += digits.substr(0, point) + "." + digits.substr(point);
  }
  return out;
}

void AppendStringRepr(std::string_view text, TextSink& out) {
  const bool double_quotes = text.find('\'') != std::string_view::npos &&
                             text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.Append(quote);
  size_t plain = 0;  // where the text not yet copied begins
  for (size_t pos = 0; pos < text.size() && !out.full();) {
    const size_t begin = pos;
    const char32_t c = NextChar(text, pos);
    std::string escape;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      escape = {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      escape = "\\n";
    } else if (c == '\r') {
      escape = "\\r";
    } else if (c == '\t') {
      escape = "\\t";
    } else if (IsPrintable(c)) {
      continue;
    } else if (c < 0x100) {
      escape = FormattedString("\\x%02x", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      escape = FormattedString("\\u%04x", static_cast<uint32_t>(c));
    } else {
      escape = FormattedString("\\U%08x", static_cast<uint32_t>(c));
    }
    out.Append(text.substr(plain, begin - plain));
    out.Append(escape);
    plain = pos;
  }
  out.Append(text.substr(plain));
  out.Append(quote);
}

absl::Status AppendStr(Env& env, const Value& value, TextSink& out) {
  if (value.is_string()) {
    out.Append(value.text());
  } else if (!value.is_undefined()) {
    INLAY_RETURN_IF_ERROR(AppendReprAt(env, value, 0, out));
  }
  return out.status();
}

absl::Status AppendRepr(Env& env, const Value& value, TextSink& out) {
  INLAY_RETURN_IF_ERROR(AppendReprAt(env, value, 0, out));
  return out.status();
}

absl::StatusOr<std::string> Str(Env& env, const Value& value) {
  TextSink out(env.budget());
  INLAY_RETURN_IF_ERROR(AppendStr(env, value, out));
  return out.Take();
}

absl::StatusOr<Value> StrValue(Env& env, const Value& value) {
  if (value.is_string()) return value;
  INLAY_ASSIGN_OR_RETURN(std::string text, Str(env, value));
  return env.String(std::move(text));
}

}  // namespace inlay::tmpl
