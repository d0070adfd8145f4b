#include "core/text/template/unicode.h"

#include <utf8proc.h>

namespace inlay::tmpl {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  size_t pos = 0;
  while (pos < text.size()) {
    if (bytes[pos] < 0x80) {
      ++pos;
      continue;
    }
    utf8proc_int32_t c;
    const auto n = utf8proc_iterate(
        bytes + pos, static_cast<utf8proc_ssize_t>(text.size() - pos), &c);
    if (n <= 0) return false;
    pos += static_cast<size_t>(n);
  }
  return true;
}

size_t CountChars(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += !IsContinuation(c);
  return n;
}

char32_t NextChar(std::string_view text, size_t& pos) {
  const auto lead = static_cast<uint8_t>(text[pos++]);
  if (lead < 0x80) return lead;
  char32_t c = lead >= 0xF0   ? lead & 0x07
               : lead >= 0xE0 ? lead & 0x0F
                              : lead & 0x1F;
  while (pos < text.size() && IsContinuation(text[pos])) {
    c = (c << 6) | (static_cast<uint8_t>(text[pos++]) & 0x3F);
  }
  return c;
}

char32_t PreviousChar(std::string_view text, size_t& end) {
  --end;
  while (end > 0 && IsContinuation(text[end])) --end;
  size_t pos = end;
  return NextChar(text, pos);
}

void AppendChar(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t pos = 0;
  for (; index > 0 && pos < text.size(); --index) {
    ++pos;
    while (pos < text.size() && IsContinuation(text[pos])) ++pos;
  }
  return pos;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
  return c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
         c == 0x2028 || c == 0x2029;
}

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlpha(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsNumeric(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsDigit(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  // Superscript digits count for str.isdigit too; they are the only ones in
  // Latin-1, and the blocks of the others are U+2070 and U+2080.
  return Category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 ||
         c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089);
}

bool IsUpper(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF);
}

bool IsLower(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA ||
         (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9) ||
         (c >= 0x2B0 && c <= 0x2B8) || c == 0x37A ||
         (c >= 0x1D2C && c <= 0x1D6A);
}

bool IsTitle(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }

bool IsIdentifierStart(char32_t c) {
  if (c < 0x80) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }
  return IsAlpha(c) || Category(c) == UTF8PROC_CATEGORY_NL;
}

bool IsIdentifierPart(char32_t c) {
  if (c < 0x80) return IsIdentifierStart(c) || (c >= '0' && c <= '9');
  const auto category = Category(c);
  return IsIdentifierStart(c) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_PC;
}

namespace {

template <typename Predicate>
std::string_view StripIf(std::string_view text, Ends ends, Predicate strips) {
  size_t begin = 0;
  size_t end = text.size();
  if (ends != Ends::kRight) {
    while (begin < end) {
      size_t next = begin;
      if (!strips(NextChar(text, next))) break;
      begin = next;
    }
  }
  if (ends != Ends::kLeft) {
    while (end > begin) {
      size_t previous = end;
      if (!strips(PreviousChar(text, previous))) break;
      end = previous;
    }
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::string_view Strip(std::string_view text, Ends ends) {
  return StripIf(text, ends, IsSpace);
}

std::string_view StripChars(std::string_view text, Ends ends,
                            std::string_view chars) {
  std::u32string set;
  for (size_t pos = 0; pos < chars.size();) set += NextChar(chars, pos);
  return StripIf(text, ends, [&set](char32_t c) {
    return set.find(c) != std::u32string::npos;
  });
}

}  // namespace inlay::tmpl
