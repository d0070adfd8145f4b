// From Oniguruma's dialect to PCRE2's, where the two read the same text
// differently (Oniguruma doc/RE; pcre2pattern(3)).
#include "core/text/regex.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

// The inside of a class that means what `\letter` means to Oniguruma, empty
// when PCRE2 agrees. PCRE2's \s has U+180E, its \w no marks, its \h is blanks;
// Oniguruma's \w has the superscripts and fractions of Latin-1.
std::string_view ClassBody(char letter) {
  switch (letter) {
    case 's':
    case 'S':
      return "\\t-\\r\\x{85}\\p{Z}";
    case 'w':
    case 'W':
      return "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}"
             "\\x{BC}-\\x{BE}";
    case 'h':
    case 'H':
      return "0-9A-Fa-f";
    default:
      return {};
  }
}

absl::Status Unsupported(std::string_view what, size_t at) {
  return absl::UnimplementedError(FormattedString(
      "regex: %s at byte %d is not supported; spell the class out", what, at));
}

}  // namespace

absl::StatusOr<std::string> TranslateRegex(std::string_view pattern) {
  std::string out;
  size_t class_begin = 0;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char letter = pattern[++i];
      const std::string_view body = ClassBody(letter);
      const bool negated = letter < 'a';
      if (body.empty()) {
        out.append({c, letter});
      } else if (!in_class) {
        out.append(negated ? "[^" : "[").append(body).append("]");
      } else if (negated) {
        return Unsupported("a negated class inside a class", i);
      } else {
        out.append(body);
      }
    } else if (!in_class) {
      in_class = c == '[';
      class_begin = i + 1;
      out.push_back(c);
      if (in_class && pattern.substr(i + 1, 1) == "^") {
        out.push_back(pattern[++i]);
        class_begin = i + 1;
      }
    } else if (c == '[' && pattern.substr(i, 2) == "[:") {
      const size_t end = pattern.find(":]", i + 2);
      if (end == std::string_view::npos)
        return Unsupported("a nested class", i);
      out.append(pattern.substr(i, end + 2 - i));
      i = end + 1;
    } else if (c == '[') {
      return Unsupported("a nested class", i);
    } else if (c == '&' && pattern.substr(i, 2) == "&&") {
      return Unsupported("an intersection of classes", i);
    } else {
      if (c == ']' && i > class_begin) in_class = false;
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace inlay
