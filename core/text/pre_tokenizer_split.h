// Pre-tokenizers that only cut: something finds matches, a behaviour says what
// becomes of them. Source: Hugging Face tokenizers, NormalizedString::split.
#ifndef INLAY_CORE_TEXT_PRE_TOKENIZER_SPLIT_H_
#define INLAY_CORE_TEXT_PRE_TOKENIZER_SPLIT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/pre_tokenizer.h"
#include "core/text/regex.h"

namespace inlay {

enum class SplitBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

// Finds matches in a piece. Immutable.
class Matcher {
 public:
  virtual ~Matcher() = default;
  // Appends matches in order, none overlapping.
  virtual absl::Status Find(std::string_view text,
                            std::vector<Match>* matches) const = 0;
  // Of a split that isolates or removes the matches.
  virtual WordCut word_cut() const { return WordCut::kNone; }
};

// A hand-written splitter where the pattern is known, else PCRE2.
absl::StatusOr<std::unique_ptr<Matcher>> MakeRegexMatcher(
    std::string_view pattern);
// Each occurrence of `needle`; none for an empty one.
std::unique_ptr<Matcher> MakeLiteralMatcher(std::string needle);
// Each code point with any of the class bits (unicode_class.h); with `runs`,
// each maximal run of such code points.
std::unique_ptr<Matcher> MakeClassMatcher(uint16_t mask, bool runs);
// The words of \w+|[^\w\s]+.
std::unique_ptr<Matcher> MakeWordMatcher();
// Every `length` (> 0) code points; a shorter rest at the end.
std::unique_ptr<Matcher> MakeLengthMatcher(size_t length);

// `invert`: what lies between matches plays the matches' part.
std::unique_ptr<PreTokenizer> MakeSplit(std::unique_ptr<Matcher> matcher,
                                        SplitBehavior behavior, bool invert);

absl::StatusOr<SplitBehavior> ParseSplitBehavior(std::string_view name);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_PRE_TOKENIZER_SPLIT_H_
