// The parts of a tokenizer.json that the readers of all tokenizer models share,
// and the readers themselves (gguf_tokenizer.h).
#ifndef INLAY_CORE_FORMATS_GGUF_TOKENIZER_PARTS_H_
#define INLAY_CORE_FORMATS_GGUF_TOKENIZER_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/gguf_vocab.h"
#include "core/json/json.h"

namespace inlay {

// {token: id}. `texts`: by id. INVALID_ARGUMENT for two of the same text.
absl::StatusOr<Json> GgufVocabularyJson(const std::vector<std::string>& texts);

// Control, unknown and user-defined tokens.
Json GgufAddedTokensJson(const GgufVocab& vocab,
                         const std::vector<std::string>& texts);

// BOS and EOS around texts; null where neither is added. INVALID_ARGUMENT
// where one is that has no id.
absl::StatusOr<Json> GgufPostProcessorJson(const GgufVocab& vocab,
                                           bool adds_bos_by_default);

// "bert".
absl::StatusOr<Json> GgufWordPieceJson(const GgufVocab& vocab);

// "rwkv". INVALID_ARGUMENT naming the key where a token is not as Python writes
// bytes, and where one of 256 single bytes is missing.
absl::StatusOr<Json> GgufLongestMatchJson(const GgufVocab& vocab);

// "t5", and "llama" where the file says how SentencePiece treats spaces: a
// document of core/text/sentencepiece_document.h.
absl::StatusOr<Json> GgufSentencePieceDocument(const GgufVocab& vocab);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_TOKENIZER_PARTS_H_
