// One formatted field, for both of Python's formatting styles. Source: the
// format specification mini-language in Python's documentation of `string`.
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "core/text/template/arithmetic.h"
#include "core/text/template/python_format.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

constexpr int64_t kMaxPrecision = 300;

std::string RadixText(Int value, int base) {
  std::string out;
  auto rest = static_cast<unsigned __int128>(value);
  do {
    out.insert(out.begin(), "0123456789abcdef"[static_cast<int>(
                                rest % static_cast<unsigned>(base))]);
    rest /= static_cast<unsigned>(base);
  } while (rest != 0);
  return out;
}

std::string Grouped(const std::string& digits, char separator) {
  const size_t point = std::min(digits.find('.'), digits.size());
  std::string out;
  for (size_t i = 0; i < point; ++i) {
    if (i > 0 && (point - i) % 3 == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(point);
}

// sign and prefix | digits
struct Number {
  std::string head;
  std::string digits;
};

Number FormatInteger(Int value, const FieldSpec& spec) {
  Number out;
  // The least value has no positive twin, but its bits read as one.
  const Int magnitude =
      value < 0 ? static_cast<Int>(~static_cast<unsigned __int128>(value) + 1)
                : value;
  switch (absl::ascii_tolower(static_cast<unsigned char>(spec.type))) {
    case 'x':
      out.digits = RadixText(magnitude, 16);
      break;
    case 'o':
      out.digits = RadixText(magnitude, 8);
      break;
    case 'b':
      out.digits = RadixText(magnitude, 2);
      break;
    default:
      out.digits = IntText(value);
      if (value < 0) out.digits.erase(0, 1);
  }
  if (spec.alternate && spec.type != 0 && spec.type != 'd') {
    out.head = std::string("0") + spec.type;
  }
  if (spec.type == 'X') out.digits = absl::AsciiStrToUpper(out.digits);
  if (value < 0) {
    out.head.insert(0, "-");
  } else if (spec.sign != '-') {
    out.head.insert(0, 1, spec.sign);
  }
  return out;
}

Number FormatReal(double value, const FieldSpec& spec) {
  Number out;
  const int precision =
      spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const double magnitude = std::abs(value);
  const char type = static_cast<char>(
      absl::ascii_tolower(static_cast<unsigned char>(spec.type)));
  if (!std::isfinite(value)) {
    out.digits = std::isnan(value) ? "nan" : "inf";
  } else if (type == 0 && spec.precision < 0) {
    out.digits = FloatText(magnitude);
  } else if (type == 'e') {
    out.digits = FormattedString("%.*e", precision, magnitude);
  } else if (type == 'f') {
    out.digits = FormattedString("%.*f", precision, magnitude);
  } else if (type == '%') {
    out.digits = FormattedString("%.*f", precision, magnitude * 100);
  } else {
    out.digits =
        FormattedString("%.*g", precision == 0 ? 1 : precision, magnitude);
    // The general format without a type keeps a digit behind the point.
    if (type == 0 && out.digits.find_first_of(".e") == std::string::npos) {
      out.digits += ".0";
    }
  }
  if (type == '%') out.digits += "%";
  if (absl::ascii_isupper(static_cast<unsigned char>(spec.type))) {
    out.digits = absl::AsciiStrToUpper(out.digits);
  }
  if (std::signbit(value) && !std::isnan(value)) {
    out.head = "-";
  } else if (spec.sign != '-') {
    out.head = spec.sign;
  }
  return out;
}

void AppendPadded(std::string_view head, std::string_view body,
                  size_t body_chars, char align, const FieldSpec& spec,
                  TextSink& out) {
  const auto used = static_cast<int64_t>(head.size() + body_chars);
  const int64_t pad = spec.width > used ? spec.width - used : 0;
  std::string fill;
  AppendChar(spec.fill, fill);
  const int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
  out.AppendRepeated(fill, left);
  out.Append(head);
  if (align == '=') out.AppendRepeated(fill, pad);
  out.Append(body);
  if (align == '<' || align == '^') out.AppendRepeated(fill, pad - left);
}

absl::Status AppendText(const Value& value, const FieldSpec& spec,
                        TextSink& out) {
  if (spec.sign != '-' || spec.alternate || spec.grouping != 0 ||
      spec.align == '=') {
    return absl::InvalidArgumentError(
        "a sign, '#', ',' or '=' in the format of a string");
  }
  std::string_view text = value.text();
  size_t chars = value.num_chars();
  if (spec.precision >= 0 && static_cast<uint64_t>(spec.precision) < chars) {
    chars = static_cast<size_t>(spec.precision);
    text = text.substr(0, ByteOffset(text, chars));
  }
  AppendPadded("", text, chars, spec.align != 0 ? spec.align : '<', spec, out);
  return out.status();
}

}  // namespace

absl::Status AppendField(Env& env, const Value& value, const FieldSpec& spec,
                         TextSink& out) {
  if (spec.precision > kMaxPrecision && !value.is_string()) {
    return absl::ResourceExhaustedError(
        FormattedString("a precision of %d digits, at most %d allowed",
                        spec.precision, kMaxPrecision));
  }
  const std::string_view types = value.is_string()        ? "s"
                                 : value.is_integral()    ? "dxXobceEfFgGn%"
                                 : value.is(Kind::kFloat) ? "eEfFgGn%"
                                                          : "";
  if (spec.type != 0 && types.find(spec.type) == types.npos) {
    return absl::InvalidArgumentError(
        FormattedString("unknown format code '%c' for object of type '%s'",
                        spec.type, TypeName(value)));
  }
  if (value.is_string()) return AppendText(value, spec, out);
  if (!value.is_number()) {
    INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, value));
    return AppendText(text, spec, out);
  }
  if (spec.type == 'c') {
    const Int code = value.integer();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return absl::InvalidArgumentError("%c of no Unicode character");
    }
    std::string text;
    AppendChar(static_cast<char32_t>(code), text);
    AppendPadded("", text, 1, spec.align != 0 ? spec.align : '<', spec, out);
    return out.status();
  }
  const bool as_real =
      value.is(Kind::kFloat) ||
      std::string_view("eEfFgG%").find(spec.type == 0 ? 'd' : spec.type) !=
          std::string_view::npos;
  Number number = as_real ? FormatReal(value.real(), spec)
                          : FormatInteger(value.integer(), spec);
  if (spec.grouping != 0) number.digits = Grouped(number.digits, spec.grouping);
  AppendPadded(number.head, number.digits, number.digits.size(),
               spec.align != 0 ? spec.align : '>', spec, out);
  return out.status();
}

}  // namespace inlay::tmpl
