// SentencePiece's BPE: neighbouring symbols merge, the pair whose piece has the
// highest score first, of equal ones the leftmost. Knows nothing of
// normalisation or byte fallback. Source: Sennrich et al. 2016 (arXiv
// 1508.07909) with scores for merge ranks.
#ifndef INLAY_CORE_TEXT_SENTENCEPIECE_BPE_H_
#define INLAY_CORE_TEXT_SENTENCEPIECE_BPE_H_

#include <string_view>
#include <vector>

#include "core/text/sentencepiece_vocab.h"
#include "core/text/unigram_lattice.h"

namespace inlay {

// Immutable after construction.
class SentencePieceBpe {
 public:
  // `vocab` must outlive this.
  explicit SentencePieceBpe(const SentencePieceVocab* vocab);

  // Appends the pieces of `text` (normalised, at most 256 MiB) from `begin` on;
  // characters without a piece get the unknown id, one by one. Where words are
  // separate it stops behind some of them: the result is where to begin next.
  // O(n log n + n * longest piece) for n bytes.
  size_t Encode(std::string_view text, size_t begin,
                std::vector<TextSpan>* path) const;

 private:
  const SentencePieceVocab* vocab_;
  bool has_unused_ = false;
  // No piece has a space behind another character, so that no merge crosses
  // the beginning of a word and words may be merged one after the other.
  bool words_are_separate_ = true;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_SENTENCEPIECE_BPE_H_
