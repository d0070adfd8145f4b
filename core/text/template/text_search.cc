#include "core/text/template/text_search.h"

#include <string.h>

#include <algorithm>

#include "core/text/template/unicode.h"
#include "memory/status.h"

namespace inlay::tmpl {

size_t FindText(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // std::string::find compares at every position; memmem is two-way.
  const void* found = memmem(text.data() + from, text.size() - from,
                             needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

size_t FindLastText(std::string_view text, std::string_view needle,
                    size_t end) {
  if (needle.size() > end) return std::string_view::npos;
  return text.rfind(needle, end - needle.size());
}

absl::Status SpendSearch(Env& env, std::string_view text,
                         std::string_view needle) {
  return env.budget().SpendBytes(text.size() * (8 + needle.size()));
}

absl::StatusOr<std::string> ReplaceText(Env& env, std::string_view text,
                                        std::string_view from,
                                        std::string_view to, int64_t count) {
  INLAY_RETURN_IF_ERROR(env.budget().SpendBytes(text.size()));
  TextSink out(env.budget());
  size_t pos = 0;
  while (count != 0 && !out.full()) {
    size_t at = FindText(text, from, pos);
    if (at == std::string_view::npos) break;
    if (from.empty()) {
      // Between all characters, and at both ends.
      out.Append(to);
      if (at == text.size()) return out.Take();
      NextChar(text, at);
    }
    out.Append(text.substr(pos, at - pos));
    if (!from.empty()) {
      out.Append(to);
      at += from.size();
    }
    pos = at;
    if (count > 0) --count;
  }
  out.Append(text.substr(pos));
  return out.Take();
}

}  // namespace inlay::tmpl
