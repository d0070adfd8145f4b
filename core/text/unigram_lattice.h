// UnigramLattice: the best segmentation of a text under a unigram model, in one
// pass from left to right (Viterbi). Knows nothing of vocabularies' files,
// normalisation or byte fallback. Source: Kudo 2018 (arXiv 1804.10959), 3.2.
#ifndef INLAY_CORE_TEXT_UNIGRAM_LATTICE_H_
#define INLAY_CORE_TEXT_UNIGRAM_LATTICE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/text/piece_trie.h"

namespace inlay {

// Bytes of the character that starts with `lead`, as its first byte promises;
// a stray continuation byte counts as a character.
inline size_t Utf8LengthFromLead(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0xC0) return 1;
  return byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// A piece of the text and its id.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = 0;
};

// `Score` is the type that scores are added up in: double in the Hugging Face
// library, float in SentencePiece (as of 0.2.3). Which of two nearly equal
// segmentations wins depends on its rounding.
template <typename Score>
struct UnigramLattice {
  static constexpr int32_t kNoUnk = -1;
  // The score of a piece that is never used.
  static constexpr Score kNever = -std::numeric_limits<Score>::infinity();

  const PieceTrie* trie = nullptr;  // values are ids
  std::vector<Score> scores;        // [id]
  int32_t unk_id = kNoUnk;
  Score unk_score = 0;  // of one unknown character
  // A path's score beyond this is taken off all that compete with it, so that a
  // long text does not run out of float's digits.
  Score rebase_above = std::numeric_limits<Score>::infinity();

  // Appends the pieces of `text` (shorter than 2 GiB), unknown characters one
  // by one. False when the model has no unknown piece and needs one.
  bool BestPath(std::string_view text, std::vector<TextSpan>* path) const;
};

template <typename Score>
bool UnigramLattice<Score>::BestPath(std::string_view text,
                                     std::vector<TextSpan>* path) const {
  // The last piece of the best path that ends at a byte.
  struct Cell {
    Score score = 0;
    int32_t begin = -1;  // -1: no path ends here
    int32_t id = 0;
  };
  absl::InlinedVector<Cell, 64> cells(text.size() + 1);
  cells[0].begin = 0;
  size_t frontier = 0;  // the last byte at which a path ends
  for (size_t begin = 0; begin < text.size();) {
    const size_t char_end =
        std::min(begin + Utf8LengthFromLead(text[begin]), text.size());
    if (std::abs(cells[begin].score) > rebase_above) {
      const Score base = cells[begin].score;
      for (size_t i = begin; i <= frontier; ++i) {
        if (cells[i].begin >= 0) cells[i].score -= base;
      }
    }
    const Cell from = cells[begin];
    bool has_char = false;
    uint32_t node = PieceTrie::kRoot;
    for (size_t end = begin; from.begin >= 0 && end < text.size();) {
      node = trie->Next(node, static_cast<unsigned char>(text[end++]));
      if (node == PieceTrie::kNone) break;
      const int32_t id = trie->Value(node);
      if (id < 0 || scores[static_cast<size_t>(id)] == kNever) continue;
      has_char |= end == char_end;
      frontier = std::max(frontier, end);
      const Score score = scores[static_cast<size_t>(id)] + from.score;
      Cell& cell = cells[end];
      if (cell.begin < 0 || score > cell.score) {
        cell = {score, static_cast<int32_t>(begin), id};
      }
    }
    if (from.begin >= 0 && !has_char && unk_id != kNoUnk) {
      const Score score = unk_score + from.score;
      frontier = std::max(frontier, char_end);
      Cell& cell = cells[char_end];
      if (cell.begin < 0 || score > cell.score) {
        cell = {score, static_cast<int32_t>(begin), unk_id};
      }
    }
    begin = char_end;
  }
  if (cells[text.size()].begin < 0) return false;
  const size_t first = path->size();
  for (size_t end = text.size(); end > 0;) {
    const Cell& cell = cells[end];
    path->push_back({static_cast<size_t>(cell.begin), end, cell.id});
    end = static_cast<size_t>(cell.begin);
  }
  std::reverse(path->begin() + static_cast<ptrdiff_t>(first), path->end());
  return true;
}

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_UNIGRAM_LATTICE_H_
