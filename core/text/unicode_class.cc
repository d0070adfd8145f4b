// Maps utf8proc's categories to the bits; its own two-level table is fast
// enough that no copy of it is worth its memory.
#include "core/text/unicode_class.h"

#include <utf8proc.h>

namespace inlay {
namespace {

// Indexed by utf8proc_category_t: Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps
// Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co.
constexpr uint16_t kByCategory[] = {0,
                                    kUpper | kWord,
                                    kLower | kWord,
                                    kUpper | kWord,
                                    kCaseless | kWord,
                                    kCaseless | kWord,
                                    kMark | kNonspacing | kWord,
                                    kMark | kWord,
                                    kMark | kWord,
                                    kDigit | kWord,
                                    kNumOther | kWord,
                                    kNumOther,
                                    kPunct | kWord,
                                    kPunct,
                                    kPunct,
                                    kPunct,
                                    kPunct,
                                    kPunct,
                                    kPunct,
                                    kSymbol,
                                    kSymbol,
                                    kSymbol,
                                    kSymbol,
                                    kSpace,
                                    kSpace,
                                    kSpace,
                                    kControl,
                                    kControl,
                                    0,
                                    kControl};
static_assert(UTF8PROC_CATEGORY_LU == 1 && UTF8PROC_CATEGORY_MN == 6 &&
              UTF8PROC_CATEGORY_PC == 12 && UTF8PROC_CATEGORY_ZS == 23 &&
              UTF8PROC_CATEGORY_CO == 29);

// Symbols that are Alphabetic all the same: circled, squared letters.
bool IsAlphabeticSymbol(uint32_t code) {
  return (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

}  // namespace

uint16_t NonAsciiRuneClass(uint32_t code) {
  const auto category = utf8proc_category(static_cast<int32_t>(code));
  uint16_t bits = kByCategory[category];
  if (category == UTF8PROC_CATEGORY_SO && IsAlphabeticSymbol(code)) {
    bits |= kWord;
  } else if (code == 0x85) {
    bits |= kSpace;
  } else if (code == 0x200C || code == 0x200D) {
    bits |= kWord;
  }
  return bits;
}

}  // namespace inlay
