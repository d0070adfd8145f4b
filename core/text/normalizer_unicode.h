// Normalisation of text by Unicode properties (UAX 15, UAX 44).
#ifndef INLAY_CORE_TEXT_NORMALIZER_UNICODE_H_
#define INLAY_CORE_TEXT_NORMALIZER_UNICODE_H_

#include <string>

#include "absl/status/status.h"

namespace inlay {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Rewrites `text` (valid UTF-8). RESOURCE_EXHAUSTED when memory runs out.
absl::Status ToNormalForm(NormalForm form, std::string* text);

// Each code point to its lower case, as Rust's char::to_lowercase.
void ToLower(std::string* text);

// Drops code points with any of the class bits (unicode_class.h).
void DropClass(uint16_t mask, std::string* text);

// Drops white space at the ends.
void StripSpace(bool left, bool right, std::string* text);

// BERT: drops NUL, U+FFFD and controls, maps white space to a space.
void CleanText(std::string* text);

// BERT: a space on either side of each CJK ideograph.
void SpaceIdeographs(std::string* text);

// SentencePiece's nmt rules: drops controls, maps invisible spaces to a space.
void NmtRules(std::string* text);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_NORMALIZER_UNICODE_H_
