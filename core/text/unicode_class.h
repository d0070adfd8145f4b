// What the tokenizers' rules ask about a code point, as bits. Source: the
// Unicode general category and White_Space (UAX 44), by utf8proc (Unicode 15).
#ifndef INLAY_CORE_TEXT_UNICODE_CLASS_H_
#define INLAY_CORE_TEXT_UNICODE_CLASS_H_

#include <array>
#include <cstdint>

namespace inlay {

// Bits of RuneClass().
inline constexpr uint16_t kUpper = 1 << 0;        // Lu, Lt
inline constexpr uint16_t kLower = 1 << 1;        // Ll
inline constexpr uint16_t kCaseless = 1 << 2;     // Lm, Lo
inline constexpr uint16_t kMark = 1 << 3;         // Mn, Mc, Me
inline constexpr uint16_t kDigit = 1 << 4;        // Nd
inline constexpr uint16_t kNumOther = 1 << 5;     // Nl, No
inline constexpr uint16_t kPunct = 1 << 6;        // Pc, Pd, Ps, Pe, Pi, Pf, Po
inline constexpr uint16_t kSymbol = 1 << 7;       // Sm, Sc, Sk, So
inline constexpr uint16_t kSpace = 1 << 8;        // White_Space
inline constexpr uint16_t kNewline = 1 << 9;      // CR, LF
inline constexpr uint16_t kControl = 1 << 10;     // Cc, Cf, Co
inline constexpr uint16_t kNonspacing = 1 << 11;  // Mn
inline constexpr uint16_t kWord = 1 << 12;  // Alphabetic, M, Nd, Pc, joiners
inline constexpr uint16_t kAsciiPunct = 1 << 13;  // ASCII, not alphanumeric

inline constexpr uint16_t kLetter = kUpper | kLower | kCaseless;
inline constexpr uint16_t kNumber = kDigit | kNumOther;

// For code points from U+0080 up.
uint16_t NonAsciiRuneClass(uint32_t code);

namespace unicode_class_internal {

constexpr uint16_t AsciiClass(int c) {
  if (c >= 'A' && c <= 'Z') return kUpper | kWord;
  if (c >= 'a' && c <= 'z') return kLower | kWord;
  if (c >= '0' && c <= '9') return kDigit | kWord;
  if (c == '\r' || c == '\n') return kSpace | kNewline | kControl;
  if (c >= 0x09 && c <= 0x0D) return kSpace | kControl;
  if (c == ' ') return kSpace;
  if (c < 0x20 || c == 0x7F) return kControl;
  if (c == '_') return kPunct | kAsciiPunct | kWord;
  for (const char symbol : {'$', '+', '<', '=', '>', '^', '`', '|', '~'}) {
    if (c == symbol) return kSymbol | kAsciiPunct;
  }
  return kPunct | kAsciiPunct;
}

constexpr std::array<uint16_t, 128> MakeAsciiClasses() {
  std::array<uint16_t, 128> table{};
  for (int c = 0; c < 128; ++c) table[c] = AsciiClass(c);
  return table;
}

inline constexpr std::array<uint16_t, 128> kAsciiClasses = MakeAsciiClasses();

}  // namespace unicode_class_internal

inline uint16_t RuneClass(uint32_t code) {
  return code < 128 ? unicode_class_internal::kAsciiClasses[code]
                    : NonAsciiRuneClass(code);
}

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_UNICODE_CLASS_H_
