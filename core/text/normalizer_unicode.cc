// Each rule as one pass over the code points.
#include "core/text/normalizer_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/unicode_class.h"
#include "core/text/utf8.h"
#include "memory/formatted_string.h"

namespace inlay {
namespace {

// Rewrites by `map(code, &out)`, which appends what a code point becomes.
template <typename Map>
void MapRunes(std::string* text, const Map& map) {
  std::string out;
  out.reserve(text->size());
  for (size_t pos = 0; pos < text->size();) {
    const Rune rune = RuneAt(*text, pos);
    map(rune.code, &out);
    pos += rune.bytes;
  }
  text->swap(out);
}

bool IsIdeograph(uint32_t code) {
  // 2B820-2B91F is missing in the library too.
  return (code >= 0x4E00 && code <= 0x9FFF) ||
         (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) ||
         (code >= 0x2A700 && code <= 0x2B81F) ||
         (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) ||
         (code >= 0x2F800 && code <= 0x2FA1F);
}

int Utf8procOptions(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

// Whether the decomposition of `code` begins with a mark: it has a combining
// class, or is one of the three that have none and decompose to such, or of the
// two more that do by compatibility (halfwidth voiced sound marks). Found by
// asking utf8proc for all code points; what marks decompose to is marks.
bool IsMark(uint32_t code, bool compatible) {
  if (code < 0x300) return false;
  const utf8proc_property_t* property =
      utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  return property->combining_class != 0 || code == 0xF73 || code == 0xF75 ||
         code == 0xF81 || (compatible && (code == 0xFF9E || code == 0xFF9F));
}

// `marks`, decomposed and in canonical order (The Unicode Standard, D109).
void AppendSortedMarks(std::string_view marks, bool compatible,
                       std::string* out) {
  const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<std::pair<int, uint32_t>> parts;  // combining class, code
  for (size_t pos = 0; pos < marks.size();) {
    const Rune rune = RuneAt(marks, pos);
    pos += rune.bytes;
    utf8proc_int32_t codes[8];
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(rune.code), codes, std::size(codes),
        static_cast<utf8proc_option_t>(options), nullptr);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      parts.emplace_back(utf8proc_get_property(codes[i])->combining_class,
                         static_cast<uint32_t>(codes[i]));
    }
  }
  std::stable_sort(
      parts.begin(), parts.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& part : parts) AppendRune(part.second, out);
}

// utf8proc puts marks in order by exchanging neighbours, which takes time
// quadratic in how many there are in a row: rows of more than any writing has
// are put in order here, before, so that nothing is left to exchange.
void SortLongRowsOfMarks(bool compatible, std::string* text) {
  constexpr size_t kLongRow = 64;
  std::string out;
  size_t kept = 0;  // of `text` in `out`
  for (size_t pos = 0; pos < text->size();) {
    const size_t begin = pos;
    size_t count = 0;
    while (pos < text->size()) {
      const Rune rune = RuneAt(*text, pos);
      if (!IsMark(rune.code, compatible)) break;
      pos += rune.bytes;
      ++count;
    }
    if (count > kLongRow) {
      out.append(*text, kept, begin - kept);
      AppendSortedMarks(std::string_view(*text).substr(begin, pos - begin),
                        compatible, &out);
      kept = pos;
    }
    if (pos < text->size()) pos += RuneAt(*text, pos).bytes;
  }
  if (kept == 0) return;
  out.append(*text, kept, std::string::npos);
  text->swap(out);
}

}  // namespace

absl::Status ToNormalForm(NormalForm form, std::string* text) {
  if (IsAscii(*text)) return absl::OkStatus();
  SortLongRowsOfMarks(form == NormalForm::kNfkc || form == NormalForm::kNfkd,
                      text);
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text->data()),
                   static_cast<utf8proc_ssize_t>(text->size()), &result,
                   static_cast<utf8proc_option_t>(Utf8procOptions(form)));
  if (size < 0) {
    return absl::ResourceExhaustedError(
        FormattedString("normalizer: %d bytes of text: %s", text->size(),
                        utf8proc_errmsg(size)));
  }
  text->assign(reinterpret_cast<const char*>(result),
               static_cast<size_t>(size));
  std::free(result);
  return absl::OkStatus();
}

void ToLower(std::string* text) {
  MapRunes(text, [](uint32_t code, std::string* out) {
    if (code < 0x80) {
      out->push_back(
          static_cast<char>(code >= 'A' && code <= 'Z' ? code | 0x20 : code));
    } else if (code == 0x130) {
      // The only code point whose lower case is two (SpecialCasing.txt).
      out->append("i\xCC\x87");
    } else {
      AppendRune(
          static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(code))),
          out);
    }
  });
}

void DropClass(uint16_t mask, std::string* text) {
  MapRunes(text, [mask](uint32_t code, std::string* out) {
    if ((RuneClass(code) & mask) == 0) AppendRune(code, out);
  });
}

void StripSpace(bool left, bool right, std::string* text) {
  size_t begin = 0;
  size_t end = text->size();
  while (left && begin < end) {
    const Rune rune = RuneAt(*text, begin);
    if ((RuneClass(rune.code) & kSpace) == 0) break;
    begin += rune.bytes;
  }
  while (right && begin < end) {
    const Rune rune = RuneBefore(*text, end);
    if ((RuneClass(rune.code) & kSpace) == 0) break;
    end -= rune.bytes;
  }
  *text = text->substr(begin, end - begin);
}

void CleanText(std::string* text) {
  MapRunes(text, [](uint32_t code, std::string* out) {
    const uint16_t bits = RuneClass(code);
    const bool is_space = code == '\t' || code == '\n' || code == '\r' ||
                          (bits & (kSpace | kControl)) == kSpace;
    if (is_space) {
      out->push_back(' ');
    } else if (code != 0 && code != 0xFFFD && (bits & kControl) == 0) {
      AppendRune(code, out);
    }
  });
}

void SpaceIdeographs(std::string* text) {
  if (IsAscii(*text)) return;
  MapRunes(text, [](uint32_t code, std::string* out) {
    const bool ideograph = IsIdeograph(code);
    if (ideograph) out->push_back(' ');
    AppendRune(code, out);
    if (ideograph) out->push_back(' ');
  });
}

void NmtRules(std::string* text) {
  MapRunes(text, [](uint32_t code, std::string* out) {
    const bool dropped = (code >= 0x01 && code <= 0x08) || code == 0x0B ||
                         (code >= 0x0E && code <= 0x1F) || code == 0x7F ||
                         code == 0x8F || code == 0x9F;
    const bool spaced = code == 0x09 || code == 0x0A || code == 0x0C ||
                        code == 0x0D || code == 0x1680 ||
                        (code >= 0x200B && code <= 0x200F) || code == 0x2028 ||
                        code == 0x2029 || code == 0x2581 || code == 0xFEFF ||
                        code == 0xFFFD;
    if (dropped) return;
    AppendRune(spaced ? ' ' : code, out);
  });
}

}  // namespace inlay
