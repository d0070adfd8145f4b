// Methods of Python's str that split: split, rsplit, splitlines, partition.
#include <algorithm>

#include "core/text/template/callables.h"
#include "core/text/template/text_search.h"
#include "core/text/template/unicode.h"
#include "core/text/template/value_ops.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

using Result = absl::StatusOr<Value>;
using Parts = std::vector<std::string_view>;

Result PartsToList(Env& env, const Parts& parts) {
  std::vector<Value> items;
  INLAY_RETURN_IF_ERROR(env.budget().CheckRoom(parts.size() * sizeof(Value)));
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    INLAY_ASSIGN_OR_RETURN(Value item, env.String(std::string(part)));
    items.push_back(std::move(item));
  }
  return env.List(std::move(items));
}

// At runs of whitespace, none at the ends; `max` splits, or all when negative.
Parts SplitAtSpace(std::string_view text, int64_t max) {
  Parts parts;
  text = Strip(text, Ends::kLeft);
  while (!text.empty()) {
    if (max == 0) {
      parts.push_back(Strip(text, Ends::kRight));
      return parts;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (IsSpace(NextChar(text, next))) break;
      end = next;
    }
    parts.push_back(text.substr(0, end));
    text = Strip(text.substr(end), Ends::kLeft);
    if (max > 0) --max;
  }
  return parts;
}

Parts SplitAtSpaceFromEnd(std::string_view text, int64_t max) {
  Parts parts;
  text = Strip(text, Ends::kRight);
  while (!text.empty()) {
    if (max == 0) {
      parts.push_back(Strip(text, Ends::kLeft));
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t previous = begin;
      if (IsSpace(PreviousChar(text, previous))) break;
      begin = previous;
    }
    parts.push_back(text.substr(begin));
    text = Strip(text.substr(0, begin), Ends::kRight);
    if (max > 0) --max;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool kFromEnd>
Result Split(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(int64_t max, args.Integer(1, -1, "split's maxsplit"));
  std::string_view text = self.text();
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(text.size()));
  // A part is at least a view here and a string later.
  if (!args.has(0) || args[0].is_none()) {
    return PartsToList(env, kFromEnd ? SplitAtSpaceFromEnd(text, max)
                                     : SplitAtSpace(text, max));
  }
  INLAY_ASSIGN_OR_RETURN(const std::string_view separator,
                         args.Text(0, "", "split's sep"));
  if (separator.empty()) return TypeError("empty separator");
  Parts parts;
  if (kFromEnd) {
    INLAY_RETURN_IF_ERROR(SpendSearch(env, text, separator));
    for (; max != 0; max -= max > 0) {
      const size_t at = FindLastText(text, separator, text.size());
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    }
    parts.push_back(text);
    std::reverse(parts.begin(), parts.end());
    return PartsToList(env, parts);
  }
  size_t pos = 0;
  for (; max != 0; max -= max > 0) {
    const size_t at = FindText(text, separator, pos);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(pos, at - pos));
    pos = at + separator.size();
  }
  parts.push_back(text.substr(pos));
  return PartsToList(env, parts);
}

Result SplitLines(Env& env, const Value& self, const Args& args) {
  const bool keep_ends = args.Flag(0, false);
  const std::string_view text = self.text();
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(text.size()));
  Parts parts;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pos;
    const char32_t c = NextChar(text, pos);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    parts.push_back(text.substr(begin, (keep_ends ? pos : end) - begin));
    begin = pos;
  }
  if (begin < text.size()) parts.push_back(text.substr(begin));
  return PartsToList(env, parts);
}

template <bool kFromEnd>
Result Partition(Env& env, const Value& self, const Args& args) {
  INLAY_ASSIGN_OR_RETURN(const std::string_view separator,
                         args.Text(0, "", "partition's sep"));
  if (separator.empty()) return TypeError("empty separator");
  const std::string_view text = self.text();
  INLAY_RETURN_IF_ERROR(SpendSearch(env, text, separator));
  const size_t at = kFromEnd ? FindLastText(text, separator, text.size())
                             : FindText(text, separator);
  std::string_view parts[3] = {text, "", ""};
  if (at != std::string_view::npos) {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  } else if (kFromEnd) {
    std::swap(parts[0], parts[2]);
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    INLAY_ASSIGN_OR_RETURN(Value item, env.String(std::string(part)));
    items.push_back(std::move(item));
  }
  return env.Tuple(std::move(items));
}

constexpr NativeDef kMethods[] = {
    {"split", "sep maxsplit", Split<false>},
    {"rsplit", "sep maxsplit", Split<true>},
    {"splitlines", "keepends", SplitLines},
    {"partition", "sep!", Partition<false>},
    {"rpartition", "sep!", Partition<true>},
};

}  // namespace

std::span<const NativeDef> SplitMethods() { return kMethods; }

}  // namespace inlay::tmpl
