// SentencePiece's tokenizer.model as a Tokenizer: normaliser, segmentation and
// decoding of the original library. Knows nothing of tokenizer.json or files.
// Source: google/sentencepiece, sentencepiece_model.proto and its documented
// behaviour.
#ifndef INLAY_CORE_TEXT_SENTENCEPIECE_MODEL_H_
#define INLAY_CORE_TEXT_SENTENCEPIECE_MODEL_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/text/tokenizer.h"

namespace inlay {

struct SentencePieceOptions {
  // Text that spells a control piece, or the unknown one, is that piece where
  // EncodeOptions::parse_special is set, as in transformers. The library, which
  // takes all text for text, has no such thing.
  bool control_in_text = false;
  // The dummy space is put before the start of a text alone, not before what
  // follows a control piece.
  bool prefix_once = false;
  // Control pieces between the two texts of a pair, which is [BOS] A pieces B
  // [EOS] then. None: each text has its BOS and EOS, as the format knows no
  // pairs.
  std::vector<std::string> between;
};

// `model_proto_bytes` is a serialised ModelProto, not kept after the call.
// INVALID_ARGUMENT for malformed bytes, a model that contradicts itself or
// pieces of `options` that it does not have;
// UNIMPLEMENTED for the model types WORD and CHAR.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    std::string_view model_proto_bytes,
    const SentencePieceOptions& options = {});

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_SENTENCEPIECE_MODEL_H_
