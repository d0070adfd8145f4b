// From Oniguruma's dialect to PCRE2's, where the two read the same text
// differently (Oniguruma doc/RE; pcre2pattern(3)).
#include <algorithm>
#include <vector>

#include "core/text/regex.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

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

// The bytes of the repetition by numbers at `at` ("{2}", "{2,}", "{,2}",
// "{1,2}"); 0 where none stands there.
size_t RepetitionAt(std::string_view pattern, size_t at) {
  size_t end = at + 1;
  size_t digits = 0;
  size_t commas = 0;
  while (end < pattern.size() && pattern[end] != '}') {
    const char c = pattern[end++];
    if (c >= '0' && c <= '9') {
      ++digits;
    } else if (c != ',' || commas++ > 0) {
      return 0;
    }
  }
  return end < pattern.size() && digits > 0 ? end + 1 - at : 0;
}

// Finds, outside of classes, what a repetition repeats: where in the
// translation the last character, escape, class or group begins.
class LastAtom {
 public:
  void Begin(size_t at) { begin_ = at; }
  void OpenGroup(size_t at) { groups_.push_back(at); }
  void CloseGroup() {
    if (groups_.empty()) return;
    begin_ = groups_.back();
    groups_.pop_back();
  }
  size_t begin() const { return begin_; }

 private:
  size_t begin_ = 0;
  std::vector<size_t> groups_;
};

absl::Status Unsupported(std::string_view what, size_t at) {
  return absl::UnimplementedError(FormattedString(
      "regex: %s at byte %d is not supported; spell the class out", what, at));
}

// How many of the first `most` bytes of `text` are digits to that base.
size_t CountDigits(std::string_view text, size_t most, int base) {
  size_t count = 0;
  while (count < std::min(most, text.size())) {
    const char c = text[count];
    const char letter = static_cast<char>(c | 0x20);
    const int digit = c >= '0' && c <= '9'             ? c - '0'
                      : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                                       : base;
    if (digit >= base) break;
    ++count;
  }
  return count;
}

// The bytes at the head of `rest` that belong to the escape `\letter` before
// them.
size_t EscapeTail(char letter, std::string_view rest, bool in_class) {
  const auto enclosed = [&](char end) {
    const size_t at = rest.find(end, 1);
    return at == std::string_view::npos ? 0 : at + 1;
  };
  const char next = rest.empty() ? '\0' : rest[0];
  switch (letter) {
    case 'p':
    case 'P':
      return next == '{' ? enclosed('}') : 0;
    case 'x':
      return next == '{' ? enclosed('}') : CountDigits(rest, 2, 16);
    case 'c':
      return rest.empty() ? 0 : 1;
    case 'k':
    case 'g':
      if (in_class || (next != '<' && next != '\'')) return 0;
      return enclosed(next == '<' ? '>' : next);
    default:
      // By number a group, or a byte in octal.
      return letter >= '0' && letter <= '7' ? CountDigits(rest, 2, 8) : 0;
  }
}

// Copies the escape at `*i`, all that belongs to it; `*i` goes to its last
// byte.
absl::Status CopyEscape(std::string_view pattern, bool in_class, size_t* i,
                        std::string* out) {
  const char letter = pattern[++*i];
  const std::string_view body = ClassBody(letter);
  const bool negated = letter < 'a';
  if (!body.empty() && in_class && negated) {
    return Unsupported("a negated class inside a class", *i);
  }
  if (!body.empty()) {
    if (!in_class) out->append(negated ? "[^" : "[");
    out->append(body);
    if (!in_class) out->append("]");
    return absl::OkStatus();
  }
  out->append({'\\', letter});
  const size_t tail = EscapeTail(letter, pattern.substr(*i + 1), in_class);
  out->append(pattern.substr(*i + 1, tail));
  *i += tail;
  return absl::OkStatus();
}

// Copies what stands at `*i` outside of classes. Behind a repetition by numbers
// Oniguruma's + repeats it, PCRE2's never goes back into it; ? behind one exact
// number makes it optional, or lazy.
void CopyOutside(std::string_view pattern, size_t* i, LastAtom* atom,
                 std::string* out) {
  const char c = pattern[*i];
  const size_t count = c == '{' ? RepetitionAt(pattern, *i) : 0;
  if (count > 0) {
    const std::string_view repetition = pattern.substr(*i, count);
    const std::string_view next = pattern.substr(*i + count, 1);
    // {,2}: from 0 on, which PCRE2 before 10.43 takes as it stands.
    out->append(repetition[1] == ',' ? "{0" : "{");
    out->append(repetition.substr(1));
    *i += count - 1;
    if (next == "+" ||
        (next == "?" && repetition.find(',') == std::string_view::npos)) {
      out->insert(atom->begin(), "(?:");
      out->push_back(')');
    }
    return;
  }
  if (c == '(') {
    atom->OpenGroup(out->size());
  } else if (c == ')') {
    atom->CloseGroup();
  } else if (std::string_view("*+?").find(c) == std::string_view::npos &&
             (static_cast<unsigned char>(c) & 0xC0) != 0x80) {
    atom->Begin(out->size());
  }
  out->push_back(c);
}

}  // namespace

absl::StatusOr<std::string> TranslateRegex(std::string_view pattern) {
  std::string out;
  LastAtom atom;
  size_t class_begin = 0;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      if (!in_class) atom.Begin(out.size());
      INLAY_RETURN_IF_ERROR(CopyEscape(pattern, in_class, &i, &out));
    } else if (!in_class && c != '[') {
      CopyOutside(pattern, &i, &atom, &out);
    } else if (!in_class) {
      in_class = true;
      class_begin = i + 1;
      atom.Begin(out.size());
      out.push_back(c);
      if (pattern.substr(i + 1, 1) == "^") {
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
