// A SentencePiece model as a document, for files that hold its parts under
// names of their own: what tokenizer.model says, without protobuf. Knows
// nothing of those files.
//
//   {"model": {"type": "SentencePiece", "model_type": "BPE" or "UNIGRAM",
//              "pieces": [[text, score, kind]...],   by id; kinds as in the
//                                                    .proto: 1 normal .. 6 byte
//              "byte_fallback", "treat_whitespace_as_suffix",
//              "unk_surface", "bos_piece", "eos_piece"},
//    "normalizer": {"precompiled_charsmap": base64, "add_dummy_prefix",
//                   "remove_extra_whitespaces", "escape_whitespaces"},
//    "denormalizer": {"precompiled_charsmap": base64}}
#ifndef INLAY_CORE_TEXT_SENTENCEPIECE_DOCUMENT_H_
#define INLAY_CORE_TEXT_SENTENCEPIECE_DOCUMENT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/text/tokenizer.h"

namespace inlay {

bool IsSentencePieceDocument(const Json& document);

// Errors as MakeSentencePieceTokenizer's: what it refuses is refused here.
absl::StatusOr<Json> SentencePieceDocument(std::string_view model_proto_bytes);

// A model with `tokens` (configured_tokens.h) that it has not behind its own,
// and as tokenizer_config.json (null: there is none) has it:
// "add_bos_token" and "add_eos_token" say what is put around a text; where they
// are silent, only BOS with the classes of Llama and Gemma, otherwise what the
// model has. Bytes that are no model come back as they are. INVALID_ARGUMENT
// for members of other types. Source: transformers' slow tokenizers.
absl::StatusOr<std::string> ConfiguredSentencePiece(
    std::string model_proto_bytes, const Json& tokenizer_config,
    const std::vector<Json>& tokens);

// What is absent has the .proto's default, but for bos_piece and eos_piece:
// without them nothing is put around a text. INVALID_ARGUMENT for members of
// other types; the rest as MakeSentencePieceTokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceFromDocument(
    const Json& document);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_SENTENCEPIECE_DOCUMENT_H_
