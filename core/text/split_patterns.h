// Hand-written splitters for the pre-tokeniser regexes that most models share.
// Each finds what a regex engine would find for exactly that pattern, an order
// of magnitude faster. Every other pattern goes through Regex.
#ifndef INLAY_CORE_TEXT_SPLIT_PATTERNS_H_
#define INLAY_CORE_TEXT_SPLIT_PATTERNS_H_

#include <optional>
#include <string_view>
#include <vector>

#include "core/text/regex.h"

namespace inlay {

enum class SplitPattern {
  kGpt2,
  kLlama3,  // also cl100k as tokenizer.json spells it
  kQwen2,
  kO200k,
  kDeepSeekNumbers,
  kDeepSeekCjk,
  kDeepSeekWords,
};

// The text of a pattern, as published files spell it.
std::string_view SplitPatternRegex(SplitPattern pattern);

// The pattern whose text is exactly `regex`, if it is one of the above.
std::optional<SplitPattern> RecogniseSplitPattern(std::string_view regex);

// Appends the leftmost matches in `text` (valid UTF-8). Linear time.
void FindSplits(SplitPattern pattern, std::string_view text,
                std::vector<Match>* matches);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_SPLIT_PATTERNS_H_
