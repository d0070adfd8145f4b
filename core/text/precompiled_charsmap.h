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
  // What a prefix of some text becomes.
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

  // As SentencePiece: at each position the longest key that is a prefix of the
  // rest; otherwise one code point is copied (U+FFFD for a malformed byte).
  void NormalizeLongestPrefix(std::string_view in, std::string* out) const;

  // The longest key that starts `text`.
  std::optional<Match> LongestPrefix(std::string_view text) const;

 private:
  PrecompiledCharsMap() = default;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_PRECOMPILED_CHARSMAP_H_
