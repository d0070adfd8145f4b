// The token list of a GGUF header with what belongs to it: types, scores,
// special ids. Checked: equal lengths, ids in range. Knows nothing of how text
// is cut. Source: ggml's docs/gguf.md; llama.cpp's vocabulary for the defaults.
#ifndef INLAY_CORE_FORMATS_GGUF_VOCAB_H_
#define INLAY_CORE_FORMATS_GGUF_VOCAB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/gguf.h"

namespace inlay {

// The format's own numbers.
enum class GgufTokenType : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// The texts point where the header's do.
struct GgufVocab {
  std::string model;  // "gpt2", "llama", ...
  std::string pre;    // "default" where the file names none
  std::vector<std::string_view> tokens;
  std::vector<GgufTokenType> types;      // as many as tokens
  std::vector<double> scores;            // as many, or none
  std::vector<std::string_view> merges;  // "left right"
  std::optional<int32_t> bos_id, eos_id, eot_id, eom_id, unk_id, sep_id, cls_id,
      mask_id, pad_id;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix;
  std::optional<bool> remove_extra_spaces, lowercase, strip_accents;
  std::string charsmap;  // SentencePiece's, empty where there is none

  // What stands between two texts besides the first one's EOS; nullopt:
  // nothing.
  std::optional<int32_t> separator() const;

  std::string_view token(int32_t id) const {
    return tokens[static_cast<size_t>(id)];
  }
  GgufTokenType type(int32_t id) const {
    return types[static_cast<size_t>(id)];
  }
};

// Nullopt for a file without a tokenizer. INVALID_ARGUMENT naming the key.
absl::StatusOr<std::optional<GgufVocab>> ReadGgufVocab(
    const GgufHeader& header);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_VOCAB_H_
