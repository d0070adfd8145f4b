// The patterns of split_patterns.h have no match with a space behind anything
// else, nor one with a letter behind a newline; and a run of white space that
// begins or ends at a cut does so in the whole text, too, which is what their
// \s+(?!\S) looks at.
#include "core/text/word_cut.h"

#include "core/text/unicode_class.h"
#include "core/text/utf8.h"

namespace inlay {
namespace {

bool IsVisibleAscii(uint32_t code) { return code > 0x20 && code < 0x7F; }

bool IsAsciiLetter(uint32_t code) {
  return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
}

bool IsIdeograph(uint32_t code) { return code >= 0x4E00 && code <= 0x9FFF; }

// The end of a word. Of letters, U+037A and some of the presentation forms
// decompose to a space and a mark (asked of Unicode 15 for all letters).
bool EndsWord(uint32_t code) {
  constexpr uint32_t kPresentationForms = 0xFB00;
  if (code < 0x80) return IsVisibleAscii(code);
  return code < kPresentationForms && code != 0x37A &&
         (RuneClass(code) & kLetter) != 0;
}

// The end of a line: what follows must be seen to be no white space, however
// it is normalised. Texts without spaces between words end lines with these.
bool EndsLine(uint32_t code) {
  const bool ideographic_stop = code == 0x3001 || code == 0x3002;
  const bool fullwidth = code >= 0xFF01 && code <= 0xFF5E;
  return IsVisibleAscii(code) || ideographic_stop || fullwidth ||
         IsIdeograph(code);
}

}  // namespace

size_t NextWordCut(std::string_view text, size_t from) {
  for (size_t pos = from; pos < text.size(); ++pos) {
    const char c = text[pos];
    if (c == ' ') {
      if (EndsWord(RuneBefore(text, pos).code)) return pos;
    } else if (c == '\n' && pos + 1 < text.size() &&
               EndsLine(RuneBefore(text, pos).code)) {
      const uint32_t next = RuneAt(text, pos + 1).code;
      if (IsAsciiLetter(next) || IsIdeograph(next)) return pos + 1;
    }
  }
  return text.size();
}

}  // namespace inlay
