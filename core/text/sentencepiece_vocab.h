// The vocabulary of a SentencePiece model: pieces, their kinds and scores, and
// which may be found in text. Knows nothing of segmentation or normalisation.
#ifndef INLAY_CORE_TEXT_SENTENCEPIECE_VOCAB_H_
#define INLAY_CORE_TEXT_SENTENCEPIECE_VOCAB_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/text/piece_trie.h"

namespace inlay {

namespace sentencepiece {
class ModelProto;
}  // namespace sentencepiece

// U+2581, how pieces spell a space.
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

// Immutable after Create, and referred to by the parts of one tokenizer.
struct SentencePieceVocab {
  enum class Kind : uint8_t {
    kNormal,
    kUnknown,
    kControl,
    kUserDefined,
    kUnused,
    kByte
  };
  struct Piece {
    std::string text;
    float score = 0;
    Kind kind = Kind::kNormal;
  };

  std::vector<Piece> pieces;  // [id], not empty
  PieceTrie in_text;          // normal, user-defined and unused pieces
  PieceTrie reserved;  // unknown, control and byte pieces: never found in text
  PieceTrie user_defined;  // matched before anything else
  int32_t unk_id = 0;
  std::optional<int32_t> bos_id, eos_id;
  bool byte_fallback = false;
  std::array<int32_t, 256> byte_ids = {};  // only with byte_fallback

  // INVALID_ARGUMENT for no pieces, or a piece that is empty, too long, no
  // UTF-8, repeated or whose score is not finite; for no or several unknown
  // pieces; for byte pieces without byte_fallback or the other way round.
  static absl::StatusOr<std::unique_ptr<const SentencePieceVocab>> Create(
      const sentencepiece::ModelProto& model);

  bool Contains(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < pieces.size();
  }
  const Piece& at(int32_t id) const { return pieces[static_cast<size_t>(id)]; }

  // The id of the piece `text`; a reserved piece hides another of equal text.
  std::optional<int32_t> Find(std::string_view text) const;

  // The byte of "<0x41>"; nullopt for any other text.
  static std::optional<unsigned char> ParseByte(std::string_view text);
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_SENTENCEPIECE_VOCAB_H_
