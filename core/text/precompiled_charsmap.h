// SentencePiece's precompiled character map: a double-array trie from byte
// strings to replacement strings. Owns the blob; knows nothing of tokenizers.
// Source: the layout of NormalizerSpec.precompiled_charsmap and of darts-clone
// units (Yata et al. 2007, "A compact static double-array").
#ifndef INLAY_CORE_TEXT_PRECOMPILED_CHARSMAP_H_
#define INLAY_CORE_TEXT_PRECOMPILED_CHARSMAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace inlay {

// Immutable after Create: every method may run from any number of threads.
class PrecompiledCharsMap {
 public:
  // What a prefix of a text becomes.
  struct Match {
    size_t length = 0;             // bytes of the text, never 0
    std::string_view replacement;  // valid as long as the map
  };

  // `bytes`: uint32 trie size in bytes, trie units (uint32 each), then
  // NUL-terminated replacements; all little-endian. An empty blob maps nothing.
  // INVALID_ARGUMENT when the sizes do not fit together.
  static absl::StatusOr<PrecompiledCharsMap> Create(std::string bytes);

  // As tokenizer.json's "Precompiled" normaliser: each extended grapheme
  // cluster shorter than 6 bytes is looked up whole, otherwise (or when absent)
  // each of its code points is. Appends to `out`.
  void Normalize(std::string_view in, std::string* out) const;

  // As SentencePiece: NormalizePrefix until the end of `in`. Appends to `out`.
  void NormalizeLongestPrefix(std::string_view in, std::string* out) const;

  // One step of it: the longest key that starts `text` (not empty); without one
  // its first code point unchanged, or U+FFFD for its first byte if malformed.
  // The result lives as long as the map and `text`.
  Match NormalizePrefix(std::string_view text) const;

 private:
  PrecompiledCharsMap() = default;

  // The longest or the shortest key that starts `text`.
  std::optional<Match> Find(std::string_view text, bool longest) const;
  std::string_view Replacement(size_t value_index) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // ends in NUL unless empty
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_PRECOMPILED_CHARSMAP_H_
