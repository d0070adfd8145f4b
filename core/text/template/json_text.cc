#include "core/text/template/json_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/text/template/python_repr.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

class Writer {
 public:
  Writer(Env& env, const JsonStyle& style)
      : env_(env), style_(style), out_(env.budget()) {}

  absl::Status Write(const Value& value, int level);
  absl::StatusOr<std::string> Take() { return out_.Take(); }

 private:
  absl::Status WriteList(const Value& list, int level);
  absl::Status WriteDict(const Value& dict, int level);
  absl::Status WriteKey(const Value& key);
  absl::StatusOr<std::vector<std::pair<Value, Value>>> Entries(
      const Value& dict);
  void WriteString(std::string_view text);
  void NewLine(int level) {
    if (!style_.indent.has_value()) return;
    out_.Append('\n');
    out_.AppendRepeated(*style_.indent, level);
  }

  Env& env_;
  const JsonStyle& style_;
  TextSink out_;
};

std::string NumberText(const Value& value) {
  if (!value.is(Kind::kFloat)) return IntText(value.integer());
  if (std::isnan(value.real())) return "NaN";
  if (std::isinf(value.real())) {
    return value.real() < 0 ? "-Infinity" : "Infinity";
  }
  return FloatText(value.real());
}

absl::Status Writer::Write(const Value& value, int level) {
  INLAY_RETURN_IF_ERROR(env_.budget().Spend(1));
  switch (value.kind()) {
    case Kind::kNone:
      out_.Append("null");
      break;
    case Kind::kBool:
      out_.Append(value.boolean() ? "true" : "false");
      break;
    case Kind::kInt:
    case Kind::kFloat:
      out_.Append(NumberText(value));
      break;
    case Kind::kString:
      WriteString(value.text());
      break;
    case Kind::kList:
    case Kind::kTuple:
      return WriteList(value, level);
    case Kind::kDict:
      return WriteDict(value, level);
    default:
      return TypeError(FormattedString(
          "Object of type %s is not JSON serializable", TypeName(value)));
  }
  return out_.status();
}

absl::Status Writer::WriteList(const Value& list, int level) {
  out_.Append('[');
  bool first = true;
  for (const Value& item : list.items()) {
    if (!first) out_.Append(style_.item_separator);
    first = false;
    NewLine(level + 1);
    INLAY_RETURN_IF_ERROR(Write(item, level + 1));
  }
  if (!first) NewLine(level);
  out_.Append(']');
  return out_.status();
}

absl::Status Writer::WriteKey(const Value& key) {
  if (key.is_string()) {
    WriteString(key.text());
  } else if (key.is_none() || key.is(Kind::kBool) || key.is_number()) {
    out_.Append('"');
    INLAY_RETURN_IF_ERROR(Write(key, 0));
    out_.Append('"');
  } else {
    return TypeError(FormattedString(
        "keys must be str, int, float, bool or None, not %s", TypeName(key)));
  }
  return out_.status();
}

absl::StatusOr<std::vector<std::pair<Value, Value>>> Writer::Entries(
    const Value& dict) {
  std::vector<std::pair<Value, Value>> entries = dict.dict().entries;
  for (const auto& [key, value] : entries) {
    // Only then does every comparison below have an answer.
    const bool same_type = key.is_string() == entries[0].first.is_string() &&
                           (key.is_string() || key.is_number());
    if (!same_type && entries.size() > 1) {
      return TypeError("sort_keys: the keys cannot be compared");
    }
  }
  INLAY_RETURN_IF_ERROR(
      env_.budget().Spend(static_cast<int64_t>(entries.size()) * 16));
  std::stable_sort(
      entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return a.first.is_string() ? a.first.text() < b.first.text()
                                   : a.first.real() < b.first.real();
      });
  return entries;
}

absl::Status Writer::WriteDict(const Value& dict, int level) {
  const std::vector<std::pair<Value, Value>>* entries = &dict.dict().entries;
  std::vector<std::pair<Value, Value>> sorted;
  if (style_.sort_keys) {
    INLAY_ASSIGN_OR_RETURN(sorted, Entries(dict));
    entries = &sorted;
  }
  out_.Append('{');
  bool first = true;
  for (const auto& [key, value] : *entries) {
    if (!first) out_.Append(style_.item_separator);
    first = false;
    NewLine(level + 1);
    INLAY_RETURN_IF_ERROR(WriteKey(key));
    out_.Append(style_.key_separator);
    INLAY_RETURN_IF_ERROR(Write(value, level + 1));
  }
  if (!first) NewLine(level);
  out_.Append('}');
  return out_.status();
}

std::string Escaped(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  if (c < 0x10000) return FormattedString("\\u%04x", static_cast<uint32_t>(c));
  const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
  return FormattedString("\\u%04x\\u%04x", 0xD800 + (rest >> 10),
                         0xDC00 + (rest & 0x3FF));
}

void Writer::WriteString(std::string_view text) {
  out_.Append('"');
  size_t plain = 0;  // where the text not yet copied begins
  for (size_t pos = 0; pos < text.size() && !out_.full();) {
    const size_t begin = pos;
    const char32_t c = NextChar(text, pos);
    const bool escape = c < 0x20 || c == '"' || c == '\\' ||
                        (style_.ensure_ascii && c >= 0x7F && c != 0x7F);
    if (!escape) continue;
    out_.Append(text.substr(plain, begin - plain));
    out_.Append(Escaped(c));
    plain = pos;
  }
  out_.Append(text.substr(plain));
  out_.Append('"');
}

absl::StatusOr<Value> StringFromJson(Env& env, const std::string& text) {
  if (!IsValidUtf8(text)) {
    return absl::InvalidArgumentError(
        "a string among the template's variables is not valid UTF-8");
  }
  return env.String(text);
}

}  // namespace

absl::StatusOr<std::string> ToJson(Env& env, const Value& value,
                                   const JsonStyle& style) {
  Writer writer(env, style);
  INLAY_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

absl::StatusOr<Value> FromJson(Env& env, const OrderedJson& json, int depth) {
  const int max = env.budget().limits().max_depth;
  if (depth > max) {
    return absl::ResourceExhaustedError(FormattedString(
        "the template's variables nest deeper than the %d levels allowed",
        max));
  }
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::OfInt(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned:
      return Value::OfInt(static_cast<Int>(json.get<uint64_t>()));
    case OrderedJson::value_t::number_float:
      return Value::OfFloat(json.get<double>());
    case OrderedJson::value_t::string:
      return StringFromJson(env, json.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const OrderedJson& element : json) {
        INLAY_ASSIGN_OR_RETURN(Value item, FromJson(env, element, depth + 1));
        items.push_back(std::move(item));
      }
      return env.List(std::move(items));
    }
    case OrderedJson::value_t::object: {
      DictBuilder dict(env);
      for (const auto& [name, element] : json.items()) {
        INLAY_ASSIGN_OR_RETURN(const Value key, StringFromJson(env, name));
        INLAY_ASSIGN_OR_RETURN(Value item, FromJson(env, element, depth + 1));
        INLAY_RETURN_IF_ERROR(dict.Set(key, std::move(item)));
      }
      return dict.Build();
    }
    default:
      return Value();
  }
}

}  // namespace inlay::tmpl
