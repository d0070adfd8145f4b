// Case mapping of Python's str methods: utf8proc's one-to-one mappings, the
// one-to-many ones of SpecialCasing.txt (Unicode), and the final sigma.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "core/text/template/unicode.h"

namespace inlay::tmpl {
namespace {

struct SpecialCase {
  char32_t from;
  char32_t to[3];
};

constexpr SpecialCase kSpecialUpper[] = {
    {0x00DF, {0x0053, 0x0053, 0}},      {0x0149, {0x02BC, 0x004E, 0}},
    {0x01F0, {0x004A, 0x030C, 0}},      {0x0390, {0x0399, 0x0308, 0x0301}},
    {0x03B0, {0x03A5, 0x0308, 0x0301}}, {0x0587, {0x0535, 0x0552, 0}},
    {0x1E96, {0x0048, 0x0331, 0}},      {0x1E97, {0x0054, 0x0308, 0}},
    {0x1E98, {0x0057, 0x030A, 0}},      {0x1E99, {0x0059, 0x030A, 0}},
    {0x1E9A, {0x0041, 0x02BE, 0}},      {0x1F50, {0x03A5, 0x0313, 0}},
    {0x1F52, {0x03A5, 0x0313, 0x0300}}, {0x1F54, {0x03A5, 0x0313, 0x0301}},
    {0x1F56, {0x03A5, 0x0313, 0x0342}}, {0x1F80, {0x1F08, 0x0399, 0}},
    {0x1F81, {0x1F09, 0x0399, 0}},      {0x1F82, {0x1F0A, 0x0399, 0}},
    {0x1F83, {0x1F0B, 0x0399, 0}},      {0x1F84, {0x1F0C, 0x0399, 0}},
    {0x1F85, {0x1F0D, 0x0399, 0}},      {0x1F86, {0x1F0E, 0x0399, 0}},
    {0x1F87, {0x1F0F, 0x0399, 0}},      {0x1F88, {0x1F08, 0x0399, 0}},
    {0x1F89, {0x1F09, 0x0399, 0}},      {0x1F8A, {0x1F0A, 0x0399, 0}},
    {0x1F8B, {0x1F0B, 0x0399, 0}},      {0x1F8C, {0x1F0C, 0x0399, 0}},
    {0x1F8D, {0x1F0D, 0x0399, 0}},      {0x1F8E, {0x1F0E, 0x0399, 0}},
    {0x1F8F, {0x1F0F, 0x0399, 0}},      {0x1F90, {0x1F28, 0x0399, 0}},
    {0x1F91, {0x1F29, 0x0399, 0}},      {0x1F92, {0x1F2A, 0x0399, 0}},
    {0x1F93, {0x1F2B, 0x0399, 0}},      {0x1F94, {0x1F2C, 0x0399, 0}},
    {0x1F95, {0x1F2D, 0x0399, 0}},      {0x1F96, {0x1F2E, 0x0399, 0}},
    {0x1F97, {0x1F2F, 0x0399, 0}},      {0x1F98, {0x1F28, 0x0399, 0}},
    {0x1F99, {0x1F29, 0x0399, 0}},      {0x1F9A, {0x1F2A, 0x0399, 0}},
    {0x1F9B, {0x1F2B, 0x0399, 0}},      {0x1F9C, {0x1F2C, 0x0399, 0}},
    {0x1F9D, {0x1F2D, 0x0399, 0}},      {0x1F9E, {0x1F2E, 0x0399, 0}},
    {0x1F9F, {0x1F2F, 0x0399, 0}},      {0x1FA0, {0x1F68, 0x0399, 0}},
    {0x1FA1, {0x1F69, 0x0399, 0}},      {0x1FA2, {0x1F6A, 0x0399, 0}},
    {0x1FA3, {0x1F6B, 0x0399, 0}},      {0x1FA4, {0x1F6C, 0x0399, 0}},
    {0x1FA5, {0x1F6D, 0x0399, 0}},      {0x1FA6, {0x1F6E, 0x0399, 0}},
    {0x1FA7, {0x1F6F, 0x0399, 0}},      {0x1FA8, {0x1F68, 0x0399, 0}},
    {0x1FA9, {0x1F69, 0x0399, 0}},      {0x1FAA, {0x1F6A, 0x0399, 0}},
    {0x1FAB, {0x1F6B, 0x0399, 0}},      {0x1FAC, {0x1F6C, 0x0399, 0}},
    {0x1FAD, {0x1F6D, 0x0399, 0}},      {0x1FAE, {0x1F6E, 0x0399, 0}},
    {0x1FAF, {0x1F6F, 0x0399, 0}},      {0x1FB2, {0x1FBA, 0x0399, 0}},
    {0x1FB3, {0x0391, 0x0399, 0}},      {0x1FB4, {0x0386, 0x0399, 0}},
    {0x1FB6, {0x0391, 0x0342, 0}},      {0x1FB7, {0x0391, 0x0342, 0x0399}},
    {0x1FBC, {0x0391, 0x0399, 0}},      {0x1FC2, {0x1FCA, 0x0399, 0}},
    {0x1FC3, {0x0397, 0x0399, 0}},      {0x1FC4, {0x0389, 0x0399, 0}},
    {0x1FC6, {0x0397, 0x0342, 0}},      {0x1FC7, {0x0397, 0x0342, 0x0399}},
    {0x1FCC, {0x0397, 0x0399, 0}},      {0x1FD2, {0x0399, 0x0308, 0x0300}},
    {0x1FD3, {0x0399, 0x0308, 0x0301}}, {0x1FD6, {0x0399, 0x0342, 0}},
    {0x1FD7, {0x0399, 0x0308, 0x0342}}, {0x1FE2, {0x03A5, 0x0308, 0x0300}},
    {0x1FE3, {0x03A5, 0x0308, 0x0301}}, {0x1FE4, {0x03A1, 0x0313, 0}},
    {0x1FE6, {0x03A5, 0x0342, 0}},      {0x1FE7, {0x03A5, 0x0308, 0x0342}},
    {0x1FF2, {0x1FFA, 0x0399, 0}},      {0x1FF3, {0x03A9, 0x0399, 0}},
    {0x1FF4, {0x038F, 0x0399, 0}},      {0x1FF6, {0x03A9, 0x0342, 0}},
    {0x1FF7, {0x03A9, 0x0342, 0x0399}}, {0x1FFC, {0x03A9, 0x0399, 0}},
    {0xFB00, {0x0046, 0x0046, 0}},      {0xFB01, {0x0046, 0x0049, 0}},
    {0xFB02, {0x0046, 0x004C, 0}},      {0xFB03, {0x0046, 0x0046, 0x0049}},
    {0xFB04, {0x0046, 0x0046, 0x004C}}, {0xFB05, {0x0053, 0x0054, 0}},
    {0xFB06, {0x0053, 0x0054, 0}},      {0xFB13, {0x0544, 0x0546, 0}},
    {0xFB14, {0x0544, 0x0535, 0}},      {0xFB15, {0x0544, 0x053B, 0}},
    {0xFB16, {0x054E, 0x0546, 0}},      {0xFB17, {0x0544, 0x053D, 0}},
};

constexpr SpecialCase kSpecialTitle[] = {
    {0x00DF, {0x0053, 0x0073, 0}},      {0x0149, {0x02BC, 0x004E, 0}},
    {0x01F0, {0x004A, 0x030C, 0}},      {0x0390, {0x0399, 0x0308, 0x0301}},
    {0x03B0, {0x03A5, 0x0308, 0x0301}}, {0x0587, {0x0535, 0x0582, 0}},
    {0x1E96, {0x0048, 0x0331, 0}},      {0x1E97, {0x0054, 0x0308, 0}},
    {0x1E98, {0x0057, 0x030A, 0}},      {0x1E99, {0x0059, 0x030A, 0}},
    {0x1E9A, {0x0041, 0x02BE, 0}},      {0x1F50, {0x03A5, 0x0313, 0}},
    {0x1F52, {0x03A5, 0x0313, 0x0300}}, {0x1F54, {0x03A5, 0x0313, 0x0301}},
    {0x1F56, {0x03A5, 0x0313, 0x0342}}, {0x1FB2, {0x1FBA, 0x0345, 0}},
    {0x1FB4, {0x0386, 0x0345, 0}},      {0x1FB6, {0x0391, 0x0342, 0}},
    {0x1FB7, {0x0391, 0x0342, 0x0345}}, {0x1FC2, {0x1FCA, 0x0345, 0}},
    {0x1FC4, {0x0389, 0x0345, 0}},      {0x1FC6, {0x0397, 0x0342, 0}},
    {0x1FC7, {0x0397, 0x0342, 0x0345}}, {0x1FD2, {0x0399, 0x0308, 0x0300}},
    {0x1FD3, {0x0399, 0x0308, 0x0301}}, {0x1FD6, {0x0399, 0x0342, 0}},
    {0x1FD7, {0x0399, 0x0308, 0x0342}}, {0x1FE2, {0x03A5, 0x0308, 0x0300}},
    {0x1FE3, {0x03A5, 0x0308, 0x0301}}, {0x1FE4, {0x03A1, 0x0313, 0}},
    {0x1FE6, {0x03A5, 0x0342, 0}},      {0x1FE7, {0x03A5, 0x0308, 0x0342}},
    {0x1FF2, {0x1FFA, 0x0345, 0}},      {0x1FF4, {0x038F, 0x0345, 0}},
    {0x1FF6, {0x03A9, 0x0342, 0}},      {0x1FF7, {0x03A9, 0x0342, 0x0345}},
    {0xFB00, {0x0046, 0x0066, 0}},      {0xFB01, {0x0046, 0x0069, 0}},
    {0xFB02, {0x0046, 0x006C, 0}},      {0xFB03, {0x0046, 0x0066, 0x0069}},
    {0xFB04, {0x0046, 0x0066, 0x006C}}, {0xFB05, {0x0053, 0x0074, 0}},
    {0xFB06, {0x0053, 0x0074, 0}},      {0xFB13, {0x0544, 0x0576, 0}},
    {0xFB14, {0x0544, 0x0565, 0}},      {0xFB15, {0x0544, 0x056B, 0}},
    {0xFB16, {0x054E, 0x0576, 0}},      {0xFB17, {0x0544, 0x056D, 0}},
};

template <size_t N>
const SpecialCase* Find(const SpecialCase (&table)[N], char32_t c) {
  const auto* row = std::lower_bound(
      std::begin(table), std::end(table), c,
      [](const SpecialCase& a, char32_t b) { return a.from < b; });
  return row != std::end(table) && row->from == c ? row : nullptr;
}

void AppendSpecial(const SpecialCase& row, std::string& out) {
  for (const char32_t c : row.to) {
    if (c != 0) AppendChar(c, out);
  }
}

void AppendUpper(char32_t c, std::string& out) {
  if (const auto* row = Find(kSpecialUpper, c)) return AppendSpecial(*row, out);
  AppendChar(static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c))),
             out);
}

void AppendTitle(char32_t c, std::string& out) {
  if (const auto* row = Find(kSpecialTitle, c)) return AppendSpecial(*row, out);
  AppendChar(static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(c))),
             out);
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

bool IsCaseIgnorable(char32_t c) {
  switch (utf8proc_category(static_cast<int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;

// A capital sigma at byte `begin` of `text` ends a word: a cased letter before
// it and none after, case-ignorable ones skipped.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  while (begin > 0) {
    const char32_t c = PreviousChar(text, begin);
    if (IsCaseIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  while (end < text.size()) {
    const char32_t c = NextChar(text, end);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

void AppendLower(char32_t c, std::string_view text, size_t begin, size_t end,
                 std::string& out) {
  if (c == kCapitalSigma) {
    return AppendChar(IsFinalSigma(text, begin, end) ? kFinalSigma : kSigma,
                      out);
  }
  if (c == 0x130) {  // the one lower-case mapping to two code points
    AppendChar('i', out);
    return AppendChar(0x307, out);
  }
  AppendChar(static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))),
             out);
}

}  // namespace

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    AppendUpper(NextChar(text, pos), out);
  }
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextChar(text, pos);
    AppendLower(c, text, begin, pos, out);
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextChar(text, pos);
    if (after_cased) {
      AppendLower(c, text, begin, pos, out);
    } else {
      AppendTitle(c, out);
    }
    after_cased = IsCased(c);
  }
  return out;
}

std::string ToCapitalized(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextChar(text, pos);
    if (begin == 0) {
      AppendTitle(c, out);
    } else {
      AppendLower(c, text, begin, pos, out);
    }
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextChar(text, pos);
    if (IsUpper(c)) {
      AppendLower(c, text, begin, pos, out);
    } else if (IsLower(c)) {
      AppendUpper(c, out);
    } else {
      AppendChar(c, out);
    }
  }
  return out;
}

}  // namespace inlay::tmpl
