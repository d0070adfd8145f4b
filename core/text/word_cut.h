// Where a long text can be cut before it is normalised and pre-tokenised, so
// that its parts, one after the other, give what the whole gives: memory and
// caches then see a part at a time, and whoever asked for so many ids at most
// need not wait for the rest.
#ifndef INLAY_CORE_TEXT_WORD_CUT_H_
#define INLAY_CORE_TEXT_WORD_CUT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace inlay {

// What a pre-tokenizing step makes of a text that is cut there.
enum class WordCut : uint8_t {
  kNone,   // not known
  kKeeps,  // the pieces of the whole, but for one more end there
  kCuts    // the pieces of the whole, one of which ends there
};

// The first place at or behind `from` (> 0) where `text` (valid UTF-8) can be
// cut; text.size() where there is none. It is before the space behind a word,
// or between a line's end and the word on the next. Which characters count is
// chosen so that the normal forms, lower case and dropped accents neither make
// nor take white space next to it.
size_t NextWordCut(std::string_view text, size_t from);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_WORD_CUT_H_
