// SentencePiece's normaliser: character map, white space, the dummy space.
// Knows nothing of pieces but the user-defined ones, which pass unchanged.
#ifndef INLAY_CORE_TEXT_SENTENCEPIECE_NORMALIZER_H_
#define INLAY_CORE_TEXT_SENTENCEPIECE_NORMALIZER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/text/piece_trie.h"
#include "core/text/precompiled_charsmap.h"

namespace inlay {

namespace sentencepiece {
class NormalizerSpec;
}  // namespace sentencepiece

// Immutable after Create.
class SentencePieceNormalizer {
 public:
  // `protected_pieces` (may be null) must outlive the normaliser.
  // INVALID_ARGUMENT for a malformed character map.
  static absl::StatusOr<SentencePieceNormalizer> Create(
      const sentencepiece::NormalizerSpec& spec, bool space_as_suffix,
      const PieceTrie* protected_pieces);

  // Replaces `out` by the normalised text; the dummy space is only put before
  // one that `is_start`. RESOURCE_EXHAUSTED when that would be longer than 256
  // MiB.
  absl::Status Normalize(std::string_view text, bool is_start,
                         std::string* out) const;

 private:
  explicit SentencePieceNormalizer(PrecompiledCharsMap charsmap)
      : charsmap_(std::move(charsmap)) {}

  PrecompiledCharsMap::Match Step(std::string_view text) const;
  void AppendEscaped(std::string_view text, std::string* out) const;

  PrecompiledCharsMap charsmap_;
  const PieceTrie* protected_pieces_ = nullptr;
  bool dummy_prefix_ = false;
  bool dummy_suffix_ = false;
  bool trim_ = false;
  std::string_view space_ = " ";
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_SENTENCEPIECE_NORMALIZER_H_
