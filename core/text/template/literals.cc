#include "core/text/template/literals.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "core/text/template/lexer.h"
#include "core/text/template/unicode.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// The end of digits of `base` from `pos`, single underscores between them.
size_t DigitsEnd(std::string_view text, size_t pos, int base) {
  while (pos < text.size()) {
    if (DigitValue(text[pos]) < base) {
      ++pos;
    } else if (text[pos] == '_' && pos > 0 &&
               DigitValue(text[pos - 1]) < base && pos + 1 < text.size() &&
               DigitValue(text[pos + 1]) < base) {
      ++pos;
    } else {
      break;
    }
  }
  return pos;
}

bool Accumulate(std::string_view digits, int base, Int& out) {
  out = 0;
  for (const char c : digits) {
    if (c == '_') continue;
    if (__builtin_mul_overflow(out, static_cast<Int>(base), &out) ||
        __builtin_add_overflow(out, static_cast<Int>(DigitValue(c)), &out)) {
      return false;
    }
  }
  return true;
}

int PrefixBase(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (absl::ascii_tolower(static_cast<unsigned char>(text[1]))) {
    case 'x':
      return 16;
    case 'o':
      return 8;
    case 'b':
      return 2;
    default:
      return 0;
  }
}

// The end of a float literal at `pos`, or `pos` when there is none.
size_t FloatEnd(std::string_view text, size_t pos) {
  const auto digit_at = [&](size_t i) {
    return i < text.size() &&
           absl::ascii_isdigit(static_cast<unsigned char>(text[i]));
  };
  size_t end = DigitsEnd(text, pos, 10);
  bool found = false;
  if (end < text.size() && text[end] == '.' && digit_at(end + 1)) {
    end = DigitsEnd(text, end + 1, 10);
    found = true;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const size_t sign =
        end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
    if (digit_at(end + 1 + sign)) {
      end = DigitsEnd(text, end + 1 + sign, 10);
      found = true;
    }
  }
  return found ? end : pos;
}

}  // namespace

absl::Status ScanNumber(std::string_view source, size_t pos, bool allow_float,
                        NumberLiteral& out) {
  const size_t float_end = allow_float ? FloatEnd(source, pos) : pos;
  if (float_end != pos) {
    out.is_float = true;
    out.end = float_end;
    ParseFloat(source.substr(pos, float_end - pos), out.real);
    return absl::OkStatus();
  }
  size_t begin = pos;
  int base = PrefixBase(source.substr(pos));
  if (base != 0) {
    begin = pos + 2;
    if (begin < source.size() && source[begin] == '_') ++begin;
    out.end = DigitsEnd(source, begin, base);
    if (out.end == begin) base = 0;  // "0x": the integer 0, then a name
  }
  if (base == 0) {
    base = 10;
    begin = pos;
    // A zero is followed by zeros only: "007" is three tokens' worth of error.
    out.end = DigitsEnd(source, pos, source[pos] == '0' ? 1 : 10);
  }
  if (!Accumulate(source.substr(begin, out.end - begin), base, out.integer)) {
    return absl::InvalidArgumentError(
        "integer literal too large: at most 127 bits are supported");
  }
  return absl::OkStatus();
}

bool ParseInt(std::string_view text, int base, Int& out) {
  text = Strip(text, Ends::kBoth);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const int prefix = PrefixBase(text);
  if (prefix != 0 && (base == 0 || base == prefix)) {
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
    base = prefix;
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' &&
        DigitsEnd(text, 0, 1) != text.size()) {
      return false;
    }
  }
  if (text.empty() || text[0] == '_' ||
      DigitsEnd(text, 0, base) != text.size() || !Accumulate(text, base, out)) {
    return false;
  }
  if (negative) out = -out;
  return true;
}

bool ParseFloat(std::string_view text, double& out) {
  text = Strip(text, Ends::kBoth);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain.push_back(text[i]);
      continue;
    }
    const bool between =
        i > 0 && i + 1 < text.size() &&
        absl::ascii_isdigit(static_cast<unsigned char>(text[i - 1])) &&
        absl::ascii_isdigit(static_cast<unsigned char>(text[i + 1]));
    if (!between) return false;
  }
  std::string_view rest = plain;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  // from_chars would take "nan(...)" and a second sign.
  if (rest.empty() || rest[0] == '-' || rest.find('(') != rest.npos) {
    return false;
  }
  const auto result =
      std::from_chars(rest.data(), rest.data() + rest.size(), out);
  if (result.ptr != rest.data() + rest.size()) return false;
  if (result.ec == std::errc::result_out_of_range) {
    // Too large or too small: the exponent's sign tells which.
    const size_t e = rest.find_first_of("eE");
    const bool tiny = e != rest.npos ? rest[e + 1] == '-' : rest[0] == '0';
    out = tiny ? 0.0 : std::numeric_limits<double>::infinity();
  } else if (result.ec != std::errc()) {
    return false;
  }
  if (negative) out = -out;
  return true;
}

namespace {

// What Jinja sees of a character behind a backslash: it writes everything
// beyond ASCII as escapes before it resolves any, so the backslash hits one.
std::string EscapedBeyondAscii(char32_t c) {
  const auto code = static_cast<uint32_t>(c);
  if (c < 0x100) return FormattedString("\\x%02x", code);
  if (c < 0x10000) return FormattedString("\\u%04x", code);
  return FormattedString("\\U%08x", code);
}

// The character of \xHH, \uHHHH or \UHHHHHHHH; `pos` stands behind the letter.
absl::Status AppendHexEscape(std::string_view body, char letter, size_t& pos,
                             std::string& out) {
  const size_t length = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
  const std::string_view digits = body.substr(pos, length);
  Int code = 0;
  if (digits.size() != length || digits.find('_') != digits.npos ||
      DigitsEnd(digits, 0, 16) != length || !Accumulate(digits, 16, code)) {
    return absl::InvalidArgumentError(
        FormattedString("truncated \\%c escape: %d hexadecimal digits expected",
                        letter, length));
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    return absl::InvalidArgumentError("escape of no Unicode character");
  }
  AppendChar(static_cast<char32_t>(code), out);
  pos += length;
  return absl::OkStatus();
}

void AppendOctalEscape(std::string_view body, size_t& pos, std::string& out) {
  const size_t begin = pos;
  while (pos < body.size() && pos < begin + 3 && body[pos] >= '0' &&
         body[pos] <= '7') {
    ++pos;
  }
  Int code = 0;
  Accumulate(body.substr(begin, pos - begin), 8, code);
  AppendChar(static_cast<char32_t>(code), out);
}

}  // namespace

absl::StatusOr<std::string> Unescape(std::string_view body) {
  static constexpr std::string_view kFrom = "\\'\"abfnrtv";
  static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t pos = 0; pos < body.size();) {
    if (body[pos] != '\\') {
      const size_t end = std::min(body.find('\\', pos), body.size());
      out.append(body.substr(pos, end - pos));
      pos = end;
      continue;
    }
    ++pos;  // the lexer never ends a body with a lone backslash
    const size_t begin = pos;
    const char32_t c = NextChar(body, pos);
    if (c >= 0x80) {
      out += EscapedBeyondAscii(c);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      INLAY_RETURN_IF_ERROR(
          AppendHexEscape(body, static_cast<char>(c), pos, out));
    } else if (c >= '0' && c <= '7') {
      pos = begin;
      AppendOctalEscape(body, pos, out);
    } else if (c == 'N') {
      return absl::UnimplementedError("\\N{...} escapes are not supported");
    } else if (const size_t i = kFrom.find(static_cast<char>(c));
               i != kFrom.npos) {
      out.push_back(kTo[i]);
    } else if (c != '\n') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    }
  }
  return out;
}

}  // namespace inlay::tmpl
