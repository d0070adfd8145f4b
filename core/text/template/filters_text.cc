// Filters that make text of a value.
#include <algorithm>

#include "core/text/template/callables.h"
#include "core/text/template/json_text.h"
#include "core/text/template/python_format.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/text_search.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;

template <std::string (*kMap)(std::string_view)>
Result MapText(Env& env, const Value& self, const Args&) {
  INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, self));
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(8 * text.text().size()));
  return env.String(kMap(text.text()));
}

// Unlike str.title, a word begins after a space, hyphen or opening bracket
// only.
std::string TitleWords(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    bool separators = false;
    for (size_t next = pos; pos < text.size(); pos = next) {
      const char32_t c = NextChar(text, next);
      const bool separator = IsSpace(c) || c == '-' || c == '(' || c == '{' ||
                             c == '[' || c == '<';
      if (pos == begin) separators = separator;
      if (separator != separators) break;
    }
    const std::string_view word = text.substr(begin, pos - begin);
    size_t first = 0;
    NextChar(word, first);
    out += ToUpper(word.substr(0, first)) + ToLower(word.substr(first));
  }
  return out;
}

Result Trim(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, self));
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(text.text().size()));
  if (!args.has(0) || args[0].is_none()) {
    return env.String(std::string(Strip(text.text(), Ends::kBoth)));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string_view chars,
                         args.Text(0, "", "trim's chars"));
  INLAY_RETURN_IF_ERROR(SpendSearch(env, text.text(), chars));
  return env.String(std::string(StripChars(text.text(), Ends::kBoth, chars)));
}

Result Replace(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, self));
  INLAY_ASSIGN_OR_RETURN(const Value from, StrValue(env, args[0]));
  INLAY_ASSIGN_OR_RETURN(const Value to, StrValue(env, args[1]));
  int64_t count = -1;
  if (args.has(2) && !args[2].is_none()) {
    INLAY_ASSIGN_OR_RETURN(count, args.Integer(2, -1, "replace's count"));
  }
  INLAY_ASSIGN_OR_RETURN(
      std::string out,
      ReplaceText(env, text.text(), from.text(), to.text(), count));
  return env.String(std::move(out));
}

Result String(Env& env, const Value& self, const Args&) {
  return StrValue(env, self);
}

Result Escape(Env& env, const Value& self, const Args&) {
  INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, self));
  TextSink out(env.budget());
  for (const char c : text.text()) {
    switch (c) {
      case '&':
        out.Append("&amp;");
        break;
      case '<':
        out.Append("&lt;");
        break;
      case '>':
        out.Append("&gt;");
        break;
      case '"':
        out.Append("&#34;");
        break;
      case '\'':
        out.Append("&#39;");
        break;
      default:
        out.Append(c);
    }
  }
  INLAY_ASSIGN_OR_RETURN(std::string escaped, out.Take());
  return env.String(std::move(escaped));
}

Result Indent(Env& env, const Value& self, const Args& args) {
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is_string()) {
    return TypeError(
        FormattedString("indent needs a string, got %s", TypeName(self)));
  }
  std::string indentation;
  if (args.has(0) && args[0].is_string()) {
    indentation = args[0].text();
  } else {
    INLAY_ASSIGN_OR_RETURN(const int64_t width,
                           args.Integer(0, 4, "indent's width"));
    TextSink spaces(env.budget());
    spaces.AppendRepeated(" ", width);
    INLAY_ASSIGN_OR_RETURN(indentation, spaces.Take());
  }
  const bool first = args.Flag(1, false);
  const bool blank = args.Flag(2, false);
  const std::string& text = self.text();
  TextSink out(env.budget());
  for (size_t pos = 0, line = 0; pos <= text.size() && !out.full(); ++line) {
    size_t end = pos;
    size_t next = pos;
    bool ended = false;
    while (next < text.size() && !ended) {
      end = next;
      const char32_t c = NextChar(text, next);
      ended = IsLineBreak(c);
      if (!ended) end = next;
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
    }
    if (line > 0) out.Append('\n');
    const bool indented = line == 0 ? first : blank || end > pos;
    if (indented) out.Append(indentation);
    out.Append(std::string_view(text).substr(pos, end - pos));
    if (!ended) break;
    pos = next;
  }
  INLAY_ASSIGN_OR_RETURN(std::string indented, out.Take());
  return env.String(std::move(indented));
}

Result WordCount(Env& env, const Value& self, const Args&) {
  INLAY_ASSIGN_OR_RETURN(const Value value, StrValue(env, self));
  const std::string& text = value.text();
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(8 * text.size()));
  Int words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextChar(text, pos);
    const bool word = c == '_' || IsAlpha(c) || IsNumeric(c);
    if (word && !inside) ++words;
    inside = word;
  }
  return Value::OfInt(words);
}

Result Center(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, self));
  CallArgs width;
  width.positional.push_back(args.has(0) ? args[0] : Value::OfInt(80));
  return CallNative(env, *FindMethod(text, "center"), text, width);
}

Result Format(Env& env, const Value& self, const Args& args) {
  const CallArgs& raw = args.raw();
  if (!raw.positional.empty() && !raw.named.empty()) {
    return TypeError(
        "format takes positional or named arguments, not both at once");
  }
  INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, self));
  Value values;
  if (raw.named.empty()) {
    INLAY_ASSIGN_OR_RETURN(values, env.Tuple(raw.positional));
  } else {
    DictBuilder dict(env);
    for (const auto& [name, value] : raw.named) {
      INLAY_ASSIGN_OR_RETURN(const Value key, env.String(name));
      INLAY_RETURN_IF_ERROR(dict.Set(key, value));
    }
    INLAY_ASSIGN_OR_RETURN(values, dict.Build());
  }
  return FormatPercent(env, text.text(), values);
}

Result Truncate(Env& env, const Value& self, const Args& args) {
  if (self.is_undefined()) return self;
  if (!self.is_string()) {
    return TypeError(
        FormattedString("truncate needs a string, got %s", TypeName(self)));
  }
  const Value& value = self;
  INLAY_ASSIGN_OR_RETURN(const int64_t length,
                         args.Integer(0, 255, "truncate's length"));
  INLAY_ASSIGN_OR_RETURN(const std::string_view end,
                         args.Text(2, "...", "truncate's end"));
  INLAY_ASSIGN_OR_RETURN(const int64_t leeway,
                         args.Integer(3, 5, "truncate's leeway"));
  const auto end_chars = static_cast<int64_t>(CountChars(end));
  if (length < end_chars || leeway < 0) {
    return TypeError(FormattedString(
        "truncate's length %d is below that of its end, or its leeway %d is "
        "negative",
        length, leeway));
  }
  const auto chars = static_cast<int64_t>(value.num_chars());
  if (chars <= length || chars - length <= leeway) return value;
  std::string_view kept = value.text();
  kept =
      kept.substr(0, ByteOffset(kept, static_cast<size_t>(length - end_chars)));
  if (!args.Flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return env.String(std::string(kept) + std::string(end));
}

Result UrlEncode(Env& env, const Value& self, const Args&) {
  if (IsIterable(self) && !self.is_string() && !self.is_undefined()) {
    return absl::UnimplementedError(FormattedString(
        "urlencode supports strings only, got %s", TypeName(self)));
  }
  INLAY_ASSIGN_OR_RETURN(const Value text, StrValue(env, self));
  TextSink out(env.budget());
  for (const char c : text.text()) {
    const auto byte = static_cast<uint8_t>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                       (c >= 'a' && c <= 'z') ||
                       (byte < 0x80 && std::string_view("_.-~/").find(c) !=
                                           std::string_view::npos);
    if (plain) {
      out.Append(c);
    } else {
      out.Append(FormattedString("%%%02X", byte));
    }
  }
  INLAY_ASSIGN_OR_RETURN(std::string encoded, out.Take());
  return env.String(std::move(encoded));
}

// tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false), as
// transformers defines it for chat templates.
Result ToJsonFilter(Env& env, const Value& self, const Args& args) {
  JsonStyle style;
  style.ensure_ascii = args.Flag(0, false);
  style.sort_keys = args.Flag(3, false);
  if (args.has(1) && !args[1].is_none()) {
    if (args[1].is_string()) {
      style.indent = args[1].text();
    } else {
      INLAY_ASSIGN_OR_RETURN(const int64_t width,
                             args.Integer(1, 0, "tojson's indent"));
      constexpr int64_t kMaxIndent = 1024;
      if (width > kMaxIndent) {
        return absl::ResourceExhaustedError(FormattedString(
            "tojson's indent is %d, at most %d allowed", width, kMaxIndent));
      }
      style.indent =
          std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
    }
    style.item_separator = ",";
  }
  if (args.has(2) && !args[2].is_none()) {
    const Value& pair = args[2];
    if (!pair.is_sequence() || pair.items().size() != 2 ||
        !pair.items()[0].is_string() || !pair.items()[1].is_string()) {
      return TypeError("tojson's separators must be two strings");
    }
    style.item_separator = pair.items()[0].text();
    style.key_separator = pair.items()[1].text();
  }
  INLAY_ASSIGN_OR_RETURN(std::string text, ToJson(env, self, style));
  return env.String(std::move(text));
}

constexpr NativeDef kFilters[] = {
    {"capitalize", "", MapText<ToCapitalized>},
    {"center", "width", Center},
    {"e", "", Escape},
    {"escape", "", Escape},
    {"forceescape", "", Escape},
    {"format", "*", Format},
    {"indent", "width first blank", Indent},
    {"lower", "", MapText<ToLower>},
    {"replace", "old! new! count", Replace},
    {"safe", "", String},
    {"string", "", String},
    {"title", "", MapText<TitleWords>},
    {"tojson", "ensure_ascii indent separators sort_keys", ToJsonFilter},
    {"trim", "chars", Trim},
    {"truncate", "length killwords end leeway", Truncate},
    {"upper", "", MapText<ToUpper>},
    {"urlencode", "", UrlEncode},
    {"wordcount", "", WordCount},
};

}  // namespace

std::span<const NativeDef> TextFilters() { return kFilters; }

}  // namespace inlay::tmpl
