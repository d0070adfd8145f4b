// Decoding as SentencePiece does it, token by token: byte pieces become
// characters, space symbols spaces, the dummy prefix goes.
#ifndef INLAY_CORE_TEXT_SENTENCEPIECE_DECODER_H_
#define INLAY_CORE_TEXT_SENTENCEPIECE_DECODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/text/sentencepiece_normalizer.h"
#include "core/text/sentencepiece_vocab.h"
#include "core/text/tokenizer.h"

namespace inlay {

// What decoding needs of the model besides its pieces.
struct SentencePieceDecodeRules {
  // At the start of a text the space symbol of the first piece goes, or (all)
  // those of every piece until some text has come.
  bool strip_first_space = true;
  bool strip_leading_spaces = true;
  std::string unk_surface;  // UTF-8
  // Where there is one the text comes whole in Finish.
  std::optional<SentencePieceNormalizer> denormalizer;
};

// The arguments must outlive the stream.
std::unique_ptr<DecodeStream> StartSentencePieceDecode(
    const SentencePieceVocab& vocab, const SentencePieceDecodeRules& rules,
    const DecodeOptions& options);

// Pieces that mark structure rather than text: control and unknown ones.
bool IsSpecialPiece(const SentencePieceVocab::Piece& piece);

// The bytes that `piece` stands for in the middle of a text.
std::string SentencePieceBytes(const SentencePieceVocab::Piece& piece,
                               const SentencePieceDecodeRules& rules);

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_SENTENCEPIECE_DECODER_H_
