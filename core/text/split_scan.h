// The pieces that the hand-written splitters are made of: each returns the end
// of what one alternative of a pattern matches at a position.
#ifndef INLAY_CORE_TEXT_SPLIT_SCAN_H_
#define INLAY_CORE_TEXT_SPLIT_SCAN_H_

#include <cstddef>
#include <string_view>

#include "core/text/unicode_class.h"
#include "core/text/utf8.h"

namespace inlay::split_scan {

inline constexpr size_t kNoMatch = std::string_view::npos;

// Class bits and bytes of the code point at `pos`; no bits and no bytes at the
// end of the text.
struct Peeked {
  uint16_t bits = 0;
  uint32_t bytes = 0;
  bool Is(uint16_t mask) const { return (bits & mask) != 0; }
  // A code point, and in none of the classes.
  bool IsNone(uint16_t mask) const { return bytes != 0 && (bits & mask) == 0; }
};

inline Peeked Peek(std::string_view text, size_t pos) {
  if (pos >= text.size()) return {};
  const Rune rune = RuneAt(text, pos);
  return {RuneClass(rune.code), rune.bytes};
}

// [mask]*
inline size_t SkipRun(std::string_view text, size_t pos, uint16_t mask) {
  for (Peeked at = Peek(text, pos); at.Is(mask); at = Peek(text, pos)) {
    pos += at.bytes;
  }
  return pos;
}

// [^mask]*
inline size_t SkipRunNot(std::string_view text, size_t pos, uint16_t mask) {
  for (Peeked at = Peek(text, pos); at.IsNone(mask); at = Peek(text, pos)) {
    pos += at.bytes;
  }
  return pos;
}

// \p{N}{1,limit}, given that a number is at `pos`.
inline size_t SkipNumbers(std::string_view text, size_t pos, int limit) {
  for (int i = 0; i < limit; ++i) {
    const Peeked at = Peek(text, pos);
    if (!at.Is(kNumber)) break;
    pos += at.bytes;
  }
  return pos;
}

// 's|'t|'re|'ve|'m|'ll|'d, or (?i:...) of them.
inline size_t Contraction(std::string_view text, size_t pos, bool any_case) {
  if (pos + 1 >= text.size() || text[pos] != '\'') return kNoMatch;
  const auto lower = [any_case](char c) {
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char first = lower(text[pos + 1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') {
    return pos + 2;
  }
  // U+017F, the long s, folds to s.
  if (any_case && text.substr(pos + 1, 2) == "\xC5\xBF") return pos + 3;
  if (pos + 2 >= text.size()) return kNoMatch;
  const char second = lower(text[pos + 2]);
  const bool matches = (first == 'r' && second == 'e') ||
                       (first == 'v' && second == 'e') ||
                       (first == 'l' && second == 'l');
  return matches ? pos + 3 : kNoMatch;
}

// \s*[\r\n]+ (when `newlines`), else \s+(?!\S)|\s+, given a space at `pos`.
// The first backs off to the last newline of the run, the second leaves the
// last space to the word that follows.
inline size_t Spaces(std::string_view text, size_t pos, bool newlines) {
  size_t end = pos;
  size_t last_begin = pos;
  size_t newline_end = kNoMatch;
  for (Peeked at = Peek(text, end); at.Is(kSpace); at = Peek(text, end)) {
    last_begin = end;
    end += at.bytes;
    if (at.Is(kNewline)) newline_end = end;
  }
  if (newlines && newline_end != kNoMatch) return newline_end;
  return end == text.size() || last_begin == pos ? end : last_begin;
}

}  // namespace inlay::split_scan

#endif  // INLAY_CORE_TEXT_SPLIT_SCAN_H_
