// WordPiece as tokenizer.json writes it ("type": "WordPiece"): greedy
// longest-match-first within one word. Knows nothing of how text becomes words.
// Source: Devlin et al. 2018 (BERT), the released tokenizer's algorithm.
#ifndef INLAY_CORE_TEXT_WORDPIECE_H_
#define INLAY_CORE_TEXT_WORDPIECE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/text/token_model.h"

namespace inlay {

// `model` is the "model" object: unk_token, continuing_subword_prefix,
// max_input_chars_per_word, vocab {token: id}. INVALID_ARGUMENT for an empty
// vocabulary, ids that are negative, repeated or out of range.
absl::StatusOr<std::unique_ptr<TokenModel>> MakeWordPieceFromJson(
    const Json& model);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_WORDPIECE_H_
