// Methods of Python's str, other than those that split.
#include <algorithm>

#include "core/text/template/callables.h"
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
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(8 * self.text().size()));
  return env.String(kMap(self.text()));
}

template <Ends kEnds>
Result StripMethod(Env& env, const Value& self, const Args& args) {
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(self.text().size()));
  if (!args.has(0) || args[0].is_none()) {
    return env.String(std::string(Strip(self.text(), kEnds)));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string_view chars,
                         args.Text(0, "", "strip's chars"));
  INLAY_RETURN_IF_ERROR(SpendSearch(env, self.text(), chars));
  return env.String(std::string(StripChars(self.text(), kEnds, chars)));
}

// The part of the text that optional start and end arguments (from index
// `first` of `args`) select. `offset` is its beginning in bytes.
struct Window {
  std::string_view text;
  size_t offset = 0;
  bool valid = true;  // false when start lies behind end
};

absl::StatusOr<Window> SelectWindow(const Value& self, const Args& args,
                                    size_t first) {
  Window window{self.text()};
  const auto length = static_cast<int64_t>(self.num_chars());
  int64_t bounds[2] = {0, length};
  for (size_t i = 0; i < 2; ++i) {
    if (!args.has(first + i) || args[first + i].is_none()) continue;
    INLAY_ASSIGN_OR_RETURN(int64_t bound,
                           args.Integer(first + i, 0, "a position"));
    if (bound < 0) bound = std::max<int64_t>(0, bound + length);
    bounds[i] = bound;
  }
  bounds[1] = std::min(bounds[1], length);
  if (bounds[0] > bounds[1]) {
    window.valid = false;
    return window;
  }
  window.offset = ByteOffset(self.text(), static_cast<size_t>(bounds[0]));
  window.text.remove_prefix(window.offset);
  window.text = window.text.substr(
      0, ByteOffset(window.text, static_cast<size_t>(bounds[1] - bounds[0])));
  return window;
}

template <bool kAtStart>
Result Affix(Env& env, const Value& self, const Args& args) {
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(self.text().size()));
  INLAY_ASSIGN_OR_RETURN(const Window window, SelectWindow(self, args, 1));
  std::vector<Value> affixes = {args[0]};
  if (args[0].is(Kind::kTuple)) affixes = args[0].items();
  for (const Value& affix : affixes) {
    if (affix.is_undefined()) return UndefinedError(affix);
    if (!affix.is_string()) {
      return TypeError(FormattedString(
          "%s first arg must be str or a tuple of str, not %s",
          kAtStart ? "startswith" : "endswith", TypeName(affix)));
    }
    INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(
        std::min(affix.text().size(), window.text.size())));
    if (window.valid && (kAtStart ? window.text.starts_with(affix.text())
                                  : window.text.ends_with(affix.text()))) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

// find, rfind, index and rindex: kFails says what "not found" does.
template <bool kFromEnd, bool kFails>
Result Find(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const std::string_view needle,
                         args.Text(0, "", "the text to find"));
  INLAY_RETURN_IF_ERROR(kFromEnd ? SpendSearch(env, self.text(), needle)
                                 : env.budget().SpendBytes(self.text().size()));
  INLAY_ASSIGN_OR_RETURN(const Window window, SelectWindow(self, args, 1));
  const size_t at = !window.valid ? std::string_view::npos
                    : kFromEnd
                        ? FindLastText(window.text, needle, window.text.size())
                        : FindText(window.text, needle);
  if (at == std::string_view::npos) {
    if (kFails) return absl::InvalidArgumentError("substring not found");
    return Value::OfInt(-1);
  }
  return Value::OfInt(static_cast<Int>(
      CountChars(std::string_view(self.text()).substr(0, window.offset + at))));
}

Result Count(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const std::string_view needle,
                         args.Text(0, "", "the text to count"));
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(8 * self.text().size()));
  INLAY_ASSIGN_OR_RETURN(const Window window, SelectWindow(self, args, 1));
  if (!window.valid) return Value::OfInt(0);
  if (needle.empty()) {
    return Value::OfInt(static_cast<Int>(CountChars(window.text) + 1));
  }
  Int count = 0;
  for (size_t at = FindText(window.text, needle); at != std::string_view::npos;
       at = FindText(window.text, needle, at + needle.size())) {
    ++count;
  }
  return Value::OfInt(count);
}

Result Replace(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const std::string_view from,
                         args.Text(0, "", "replace's old"));
  INLAY_ASSIGN_OR_RETURN(const std::string_view to,
                         args.Text(1, "", "replace's new"));
  INLAY_ASSIGN_OR_RETURN(const int64_t count,
                         args.Integer(2, -1, "replace's count"));
  INLAY_ASSIGN_OR_RETURN(std::string out,
                         ReplaceText(env, self.text(), from, to, count));
  return env.String(std::move(out));
}

Result Join(Env& env, const Value& self, const Args& args) {
  if (args[0].is_undefined()) return env.String("");
  INLAY_ASSIGN_OR_RETURN(ValueIterator it, ValueIterator::Over(env, args[0]));
  TextSink out(env.budget());
  Value item;
  for (int64_t i = 0;; ++i) {
    INLAY_ASSIGN_OR_RETURN(const bool more, it.Next(item));
    if (!more) break;
    if (!item.is_string()) {
      return TypeError(
          FormattedString("sequence item %d: expected str instance, %s found",
                          i, TypeName(item)));
    }
    if (i > 0) out.Append(self.text());
    out.Append(item.text());
    if (out.full()) return out.status();
  }
  INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
  return env.String(std::move(text));
}

Result FormatMethod(Env& env, const Value& self, const Args& args) {
  return FormatBraces(env, self.text(), args.raw());
}

template <bool kPrefix>
Result RemoveAffix(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const std::string_view affix,
                         args.Text(0, "", "the prefix or suffix"));
  std::string_view text = self.text();
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return env.String(std::string(text));
}

enum class Place { kLeft, kRight, kCenter };

template <Place kPlace>
Result Justify(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 0, "a width"));
  INLAY_ASSIGN_OR_RETURN(const std::string_view fill,
                         args.Text(1, " ", "a fill character"));
  if (CountChars(fill) != 1) {
    return TypeError("The fill character must be exactly one character long");
  }
  const auto length = static_cast<int64_t>(self.num_chars());
  const int64_t pad = std::max<int64_t>(0, width - length);
  // As CPython centers: an odd rest goes left when the width is odd.
  const int64_t left = kPlace == Place::kLeft    ? 0
                       : kPlace == Place::kRight ? pad
                                                 : pad / 2 + (pad & width & 1);
  TextSink out(env.budget());
  out.AppendRepeated(fill, left);
  out.Append(self.text());
  out.AppendRepeated(fill, pad - left);
  INLAY_ASSIGN_OR_RETURN(std::string text, out.Take());
  return env.String(std::move(text));
}

Result ZeroFill(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const int64_t width, args.Integer(0, 0, "a width"));
  std::string_view text = self.text();
  TextSink out(env.budget());
  if (text.starts_with('-') || text.starts_with('+')) {
    out.Append(text.substr(0, 1));
    text.remove_prefix(1);
  }
  out.AppendRepeated("0", width - static_cast<int64_t>(self.num_chars()));
  out.Append(text);
  INLAY_ASSIGN_OR_RETURN(std::string filled, out.Take());
  return env.String(std::move(filled));
}

bool IsAlphaNumeric(char32_t c) { return IsAlpha(c) || IsNumeric(c); }
bool IsAsciiChar(char32_t c) { return c < 0x80; }

// True when the text is not empty (unless kEmptyPasses) and all of it passes.
template <bool (*kPredicate)(char32_t), bool kEmptyPasses>
Result AllChars(Env& env, const Value& self, const Args&) {
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(4 * self.text().size()));
  const std::string& text = self.text();
  for (size_t pos = 0; pos < text.size();) {
    if (!kPredicate(NextChar(text, pos))) return Value::Bool(false);
  }
  return Value::Bool(kEmptyPasses || !text.empty());
}

// islower and isupper: some cased character, and none of the other case.
template <bool kUpper>
Result IsCase(Env& env, const Value& self, const Args&) {
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(4 * self.text().size()));
  const std::string& text = self.text();
  bool found = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextChar(text, pos);
    if (IsTitle(c) || (kUpper ? IsLower(c) : IsUpper(c))) {
      return Value::Bool(false);
    }
    found |= kUpper ? IsUpper(c) : IsLower(c);
  }
  return Value::Bool(found);
}

Result IsTitleCase(Env& env, const Value& self, const Args&) {
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(4 * self.text().size()));
  const std::string& text = self.text();
  bool found = false;
  bool after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextChar(text, pos);
    const bool upper = IsUpper(c) || IsTitle(c);
    const bool lower = IsLower(c);
    if ((upper && after_cased) || (lower && !after_cased)) {
      return Value::Bool(false);
    }
    after_cased = upper || lower;
    found |= after_cased;
  }
  return Value::Bool(found);
}

constexpr NativeDef kMethods[] = {
    {"strip", "chars", StripMethod<Ends::kBoth>},
    {"lstrip", "chars", StripMethod<Ends::kLeft>},
    {"rstrip", "chars", StripMethod<Ends::kRight>},
    {"startswith", "prefix! start end", Affix<true>},
    {"endswith", "suffix! start end", Affix<false>},
    {"replace", "old! new! count", Replace},
    {"upper", "", MapText<ToUpper>},
    {"lower", "", MapText<ToLower>},
    {"casefold", "", MapText<ToLower>},
    {"title", "", MapText<ToTitle>},
    {"capitalize", "", MapText<ToCapitalized>},
    {"swapcase", "", MapText<SwapCase>},
    {"find", "sub! start end", Find<false, false>},
    {"rfind", "sub! start end", Find<true, false>},
    {"index", "sub! start end", Find<false, true>},
    {"rindex", "sub! start end", Find<true, true>},
    {"count", "sub! start end", Count},
    {"join", "iterable!", Join},
    {"format", "*", FormatMethod},
    {"removeprefix", "prefix!", RemoveAffix<true>},
    {"removesuffix", "suffix!", RemoveAffix<false>},
    {"ljust", "width! fillchar", Justify<Place::kLeft>},
    {"rjust", "width! fillchar", Justify<Place::kRight>},
    {"center", "width! fillchar", Justify<Place::kCenter>},
    {"zfill", "width!", ZeroFill},
    {"isalnum", "", AllChars<IsAlphaNumeric, false>},
    {"isalpha", "", AllChars<IsAlpha, false>},
    {"isascii", "", AllChars<IsAsciiChar, true>},
    {"isdecimal", "", AllChars<IsDigit, false>},
    {"isdigit", "", AllChars<IsDigit, false>},
    {"isnumeric", "", AllChars<IsNumeric, false>},
    {"isprintable", "", AllChars<IsPrintable, true>},
    {"isspace", "", AllChars<IsSpace, false>},
    {"islower", "", IsCase<false>},
    {"isupper", "", IsCase<true>},
    {"istitle", "", IsTitleCase},
};

}  // namespace

std::span<const NativeDef> StringMethods() { return kMethods; }

}  // namespace inlay::tmpl
