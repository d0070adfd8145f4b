// SentencePiece's tokenizer.model as a Tokenizer: normaliser, segmentation and
// decoding of the original library. Knows nothing of tokenizer.json or files.
// Source: google/sentencepiece, sentencepiece_model.proto and its documented
// behaviour.
#ifndef INLAY_CORE_TEXT_SENTENCEPIECE_MODEL_H_
#define INLAY_CORE_TEXT_SENTENCEPIECE_MODEL_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/text/tokenizer.h"

namespace inlay {

// `model_proto_bytes` is a serialised ModelProto, not kept after the call.
// INVALID_ARGUMENT for malformed bytes or a model that contradicts itself;
// UNIMPLEMENTED for the model types WORD and CHAR.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    std::string_view model_proto_bytes);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_SENTENCEPIECE_MODEL_H_
