// From the token list of a GGUF header to the tokenizer.json of the same model,
// so that text becomes the ids that Hugging Face's tokenizer gives; for "t5",
// and for "llama" with the keys of SentencePiece's normaliser, to a document of
// core/text/sentencepiece_document.h, for the ids that SentencePiece gives.
// Knows nothing of how either is run.
#ifndef INLAY_CORE_FORMATS_GGUF_TOKENIZER_H_
#define INLAY_CORE_FORMATS_GGUF_TOKENIZER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/gguf_vocab.h"
#include "core/json/json.h"

namespace inlay {

// UNIMPLEMENTED naming a tokenizer model or pre-tokenizer that is not known and
// listing those that are; INVALID_ARGUMENT for repeated tokens and merges of
// what is no token; RESOURCE_EXHAUSTED for pieces too long to merge.
absl::StatusOr<Json> GgufTokenizerJson(const GgufVocab& vocab);

// The merges that SentencePiece's scores amount to, [left, right] each, in the
// order of transformers' conversion: of every cut of a piece into two pieces,
// by score, then by the lengths. `texts`: by id, as the vocabulary has them.
absl::StatusOr<Json> GgufScoreMerges(const GgufVocab& vocab,
                                     const std::vector<std::string>& texts);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_TOKENIZER_H_
