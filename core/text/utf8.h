// UTF-8: reading and writing code points, validity, repair (The Unicode
// Standard, D92 and section 3.9 "U+FFFD Substitution of Maximal Subparts").
#ifndef INLAY_CORE_TEXT_UTF8_H_
#define INLAY_CORE_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace inlay {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

struct Rune {
  uint32_t code;
  uint32_t bytes;
};

// The code point at text[pos]; `text` is valid UTF-8 and pos < text.size() is
// at a boundary.
inline Rune RuneAt(std::string_view text, size_t pos) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + pos;
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {(p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2};
  if (p[0] < 0xF0) {
    return {(p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3};
  }
  return {(p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 |
              (p[3] & 0x3Fu),
          4};
}

// The code point that ends at `pos` (> 0, a boundary) of valid UTF-8.
inline Rune RuneBefore(std::string_view text, size_t pos) {
  size_t begin = pos - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  return RuneAt(text, begin);
}

// `code` is a Unicode scalar value.
void AppendRune(uint32_t code, std::string* out);

// Bytes that start at text[pos]: `bytes` of them are one whole code point when
// kValid; a maximal invalid subsequence when kInvalid; the start of a code
// point that the end of the text cuts when kCut.
enum class Utf8Kind { kValid, kInvalid, kCut };
struct Utf8Step {
  Utf8Kind kind;
  uint32_t bytes;
};
Utf8Step StepUtf8(std::string_view text, size_t pos);

bool IsValidUtf8(std::string_view text);
bool IsAscii(std::string_view text);

// Appends `text`, each maximal invalid subsequence (a cut tail is one) as
// U+FFFD.
void AppendValidUtf8(std::string_view text, std::string* out);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_UTF8_H_
