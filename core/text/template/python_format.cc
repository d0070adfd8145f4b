#include "core/text/template/python_format.h"

#include <optional>

#include "core/text/template/arithmetic.h"
#include "core/text/template/literals.h"
#include "core/text/template/members.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 30;

bool IsDigitAt(std::string_view text, size_t pos) {
  return pos < text.size() && text[pos] >= '0' && text[pos] <= '9';
}

int64_t TakeNumber(std::string_view text, size_t& pos) {
  int64_t n = 0;
  for (; IsDigitAt(text, pos); ++pos) {
    n = std::min(kMaxWidth, n * 10 + (text[pos] - '0'));
  }
  return n;
}

// The values of a "%" operation: a tuple's in order, one value, or a mapping's
// by name.
class PercentValues {
 public:
  PercentValues(Env& env, const Value& values) : env_(env), values_(values) {}

  absl::StatusOr<Value> Next() {
    if (values_.is(Kind::kTuple)) {
      if (used_ < values_.items().size()) return values_.items()[used_++];
    } else if (used_++ == 0) {
      return values_;
    }
    return TypeError("not enough arguments for format string");
  }
  absl::StatusOr<Value> Named(std::string_view name) {
    if (!values_.is(Kind::kDict)) return TypeError("format requires a mapping");
    used_ = 1;
    INLAY_RETURN_IF_ERROR(env_.budget().Spend(
        static_cast<int64_t>(values_.dict().entries.size())));
    const Value* value = LookupText(values_, name);
    if (value == nullptr) {
      return absl::InvalidArgumentError(
          FormattedString("the format names '%s', which is missing", name));
    }
    return *value;
  }
  bool AllUsed() const {
    if (values_.is(Kind::kTuple)) return used_ == values_.items().size();
    // Python lets anything pass that can be subscripted, texts apart.
    return used_ > 0 || values_.is(Kind::kDict) || values_.is(Kind::kList) ||
           values_.is(Kind::kRange) || values_.is_undefined();
  }

 private:
  Env& env_;
  const Value& values_;
  size_t used_ = 0;
};

// `format` from `pos`, behind the '%', into `out`.
absl::Status AppendPercentField(Env& env, std::string_view format, size_t& pos,
                                PercentValues& values, TextSink& out) {
  FieldSpec spec;
  std::optional<Value> value;
  if (pos < format.size() && format[pos] == '(') {
    const size_t close = format.find(')', pos);
    if (close == format.npos) return TypeError("incomplete format key");
    INLAY_ASSIGN_OR_RETURN(
        value, values.Named(format.substr(pos + 1, close - pos - 1)));
    pos = close + 1;
  }
  spec.align = '>';
  bool zero = false;
  for (; pos < format.size(); ++pos) {
    const char c = format[pos];
    if (c == '-') {
      spec.align = '<';
    } else if (c == '0') {
      zero = true;
    } else if (c == '#') {
      spec.alternate = true;
    } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
      spec.sign = c;
    } else if (c != ' ') {
      break;
    }
  }
  spec.width = TakeNumber(format, pos);
  if (pos < format.size() && format[pos] == '.') {
    spec.precision = TakeNumber(format, ++pos);
  }
  if (pos >= format.size()) return TypeError("incomplete format");
  const char type = format[pos++];
  if (type == '%') {
    out.Append('%');
    return out.status();
  }
  if (!value.has_value()) {
    INLAY_ASSIGN_OR_RETURN(value, values.Next());
  }
  if (type == 's' || type == 'r') {
    TextSink text(env.budget());
    INLAY_RETURN_IF_ERROR(type == 's' ? AppendStr(env, *value, text)
                                      : AppendRepr(env, *value, text));
    INLAY_ASSIGN_OR_RETURN(std::string plain, text.Take());
    INLAY_ASSIGN_OR_RETURN(value, env.String(std::move(plain)));
    spec.sign = '-';
    spec.alternate = false;
    return AppendField(env, *value, spec, out);
  }
  if (type == 'c' && value->is_string() && value->num_chars() == 1) {
    return AppendField(env, *value, spec, out);
  }
  if (value->is_undefined()) return UndefinedError(*value);
  if (std::string_view("diuxXoceEfFgG").find(type) == std::string_view::npos) {
    return absl::InvalidArgumentError(
        FormattedString("unsupported format character '%c'", type));
  }
  if (!value->is_number()) {
    return TypeError(FormattedString(
        "%%%c format: a number is required, not %s", type, TypeName(*value)));
  }
  spec.type = type == 'i' || type == 'u' ? 'd' : type;
  if (spec.type == 'd' && value->is(Kind::kFloat)) {
    INLAY_ASSIGN_OR_RETURN(const Int whole, Truncate(value->real()));
    value = Value::OfInt(whole);
  }
  if (zero && spec.align == '>') {
    spec.align = '=';
    spec.fill = '0';
  }
  return AppendField(env, *value, spec, out);
}

absl::StatusOr<FieldSpec> ParseSpec(std::string_view text) {
  FieldSpec spec;
  size_t pos = 0;
  if (!text.empty()) {
    size_t next = 0;
    const char32_t first = NextChar(text, next);
    if (next < text.size() &&
        std::string_view("<>^=").find(text[next]) != std::string_view::npos) {
      spec.fill = first;
      spec.align = text[next];
      pos = next + 1;
    } else if (std::string_view("<>^=").find(text[0]) !=
               std::string_view::npos) {
      spec.align = text[0];
      pos = 1;
    }
  }
  const auto take = [&](std::string_view choices) -> char {
    if (pos >= text.size() || choices.find(text[pos]) == choices.npos) return 0;
    return text[pos++];
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0 && spec.align == 0) {
    spec.fill = '0';
    spec.align = '=';
  }
  spec.width = TakeNumber(text, pos);
  spec.grouping = take(",_");
  if (take(".") != 0) {
    if (!IsDigitAt(text, pos)) {
      return absl::InvalidArgumentError("format specifier misses precision");
    }
    spec.precision = TakeNumber(text, pos);
  }
  spec.type = take("sdbocxXeEfFgGn%");
  if (pos != text.size()) {
    return absl::InvalidArgumentError(
        FormattedString("invalid format specifier '%s'", text.substr(0, 40)));
  }
  return spec;
}

// The value that "0.name[key]" means.
absl::StatusOr<Value> ResolveField(Env& env, std::string_view field,
                                   const CallArgs& args, size_t& automatic) {
  const size_t name_end = std::min(field.find_first_of(".["), field.size());
  const std::string_view name = field.substr(0, name_end);
  Value value;
  Int index = 0;
  if (name.empty() || ParseInt(name, 10, index)) {
    if (name.empty()) index = static_cast<Int>(automatic++);
    if (index < 0 || index >= static_cast<Int>(args.positional.size())) {
      return absl::InvalidArgumentError(
          "replacement index out of range for positional arguments");
    }
    value = args.positional[static_cast<size_t>(index)];
  } else {
    bool found = false;
    for (const auto& [key, named] : args.named) {
      if (key != name) continue;
      value = named;
      found = true;
    }
    if (!found) {
      return absl::InvalidArgumentError(
          FormattedString("format() misses its argument '%s'", name));
    }
  }
  for (size_t pos = name_end; pos < field.size();) {
    const bool attribute = field[pos] == '.';
    const size_t end =
        attribute ? std::min(field.find_first_of(".[", pos + 1), field.size())
                  : field.find(']', pos);
    if (end == field.npos || (!attribute && field[pos] != '[')) {
      return absl::InvalidArgumentError("malformed field in a format string");
    }
    const std::string_view key = field.substr(pos + 1, end - pos - 1);
    INLAY_ASSIGN_OR_RETURN(Value part, env.String(std::string(key)));
    if (!attribute && ParseInt(key, 10, index)) part = Value::OfInt(index);
    INLAY_ASSIGN_OR_RETURN(value, attribute ? GetAttribute(env, value, part)
                                            : GetItem(env, value, part));
    pos = attribute ? end : end + 1;
  }
  return value;
}

absl::Status AppendBraceField(Env& env, std::string_view field,
                              const CallArgs& args, size_t& automatic,
                              TextSink& out) {
  const size_t colon = std::min(field.find(':'), field.size());
  std::string_view name = field.substr(0, colon);
  char conversion = 0;
  if (name.size() >= 2 && name[name.size() - 2] == '!') {
    conversion = name.back();
    name.remove_suffix(2);
  }
  INLAY_ASSIGN_OR_RETURN(Value value, ResolveField(env, name, args, automatic));
  if (conversion == 'r' || conversion == 's') {
    TextSink text(env.budget());
    INLAY_RETURN_IF_ERROR(conversion == 's' ? AppendStr(env, value, text)
                                            : AppendRepr(env, value, text));
    INLAY_ASSIGN_OR_RETURN(std::string plain, text.Take());
    INLAY_ASSIGN_OR_RETURN(value, env.String(std::move(plain)));
  } else if (conversion != 0) {
    return absl::InvalidArgumentError(
        FormattedString("unknown conversion specifier '%c'", conversion));
  }
  const std::string_view spec_text =
      colon < field.size() ? field.substr(colon + 1) : std::string_view();
  if (spec_text.empty()) return AppendStr(env, value, out);
  INLAY_ASSIGN_OR_RETURN(const FieldSpec spec, ParseSpec(spec_text));
  return AppendField(env, value, spec, out);
}

}  // namespace

absl::StatusOr<Value> FormatPercent(Env& env, std::string_view format,
                                    const Value& values) {
  TextSink out(env.budget());
  PercentValues source(env, values);
  size_t pos = 0;
  while (pos < format.size()) {
    const size_t percent = std::min(format.find('%', pos), format.size());
    out.Append(format.substr(pos, percent - pos));
    pos = percent;
    if (pos == format.size()) break;
    INLAY_RETURN_IF_ERROR(env.budget().Spend(1));
    INLAY_RETURN_IF_ERROR(AppendPercentField(env, format, ++pos, source, out));
  }
  if (!source.AllUsed()) {
    return TypeError("not all arguments converted during string formatting");
  }
  INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
  return env.String(std::move(text));
}

absl::StatusOr<Value> FormatBraces(Env& env, std::string_view format,
                                   const CallArgs& args) {
  TextSink out(env.budget());
  size_t automatic = 0;
  for (size_t pos = 0; pos < format.size();) {
    const size_t brace =
        std::min(format.find_first_of("{}", pos), format.size());
    out.Append(format.substr(pos, brace - pos));
    if (brace == format.size()) break;
    INLAY_RETURN_IF_ERROR(env.budget().Spend(1));
    if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
      out.Append(format[brace]);
      pos = brace + 2;
      continue;
    }
    const size_t close = format.find_first_of("{}", brace + 1);
    if (format[brace] == '}' || close == format.npos) {
      return absl::InvalidArgumentError("a single brace in a format string");
    }
    if (format[close] == '{') {
      return absl::UnimplementedError(
          "nested fields in format strings are not supported");
    }
    INLAY_RETURN_IF_ERROR(
        AppendBraceField(env, format.substr(brace + 1, close - brace - 1), args,
                         automatic, out));
    pos = close + 1;
  }
  INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
  return env.String(std::move(text));
}

}  // namespace inlay::tmpl
