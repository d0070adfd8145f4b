// The lists of tokens that a GGUF file is given: texts, types, and scores or
// merges, an entry for each row of the embedding. What the writers of all
// tokenizer models share (gguf_tokenizer_writer.h).
#ifndef INLAY_CORE_FORMATS_GGUF_TOKEN_LISTS_H_
#define INLAY_CORE_FORMATS_GGUF_TOKEN_LISTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "core/formats/gguf_vocab.h"
#include "core/formats/gguf_writer.h"
#include "core/json/json.h"

namespace inlay {

struct GgufTokenLists {
  // Of `size` unused tokens without a text.
  explicit GgufTokenLists(int64_t size);

  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;        // as many as tokens, or none
  std::vector<std::string> merges;  // "left right"
  std::unordered_map<std::string, int32_t> ids;

  // What stands before and behind a text.
  std::optional<int32_t> front, back;
  // Of a pair, where the tokenizer has one: how many tokens stand between its
  // texts, and the last of them.
  std::optional<int64_t> num_between;
  std::optional<int32_t> separator;

  std::optional<int32_t> Find(const std::string& token) const;
  bool IsOf(int32_t id, GgufTokenType type) const;
  void SetType(int32_t id, GgufTokenType type);

  // INVALID_ARGUMENT for an id that is no token's.
  absl::Status Add(const std::string& text, const Json& id, GgufTokenType type);
  // The section "added_tokens" of a tokenizer.json.
  absl::Status AddAdded(const Json& file);
  // Unused tokens get the text that llama.cpp's converter gives them.
  void NameUnused();
};

// "[PAD7]", for the id 7.
std::string GgufUnusedToken(size_t id);

// "<0x0A>": a byte that is no part of any piece.
bool IsByteToken(std::string_view token);

// Of the piece models, each of the model's keys, filled into `lists` too.
// tokenizer.json with a model of type Unigram ("t5") or WordPiece ("bert"), and
// a SentencePiece document (core/text: "t5" or "llama").
absl::Status SetGgufUnigram(const Json& file, const Json& model,
                            GgufTokenLists* lists, GgufWriter* writer);
absl::Status SetGgufWordPiece(const Json& file, const Json& model,
                              GgufTokenLists* lists, GgufWriter* writer);
absl::Status SetGgufSentencePiece(const Json& document, const Json& model,
                                  GgufTokenLists* lists, GgufWriter* writer);

// What an unknown piece decodes to where a model does not say: no key says it.
inline constexpr char kGgufUnknownSurface[] = " \xE2\x81\x87 ";

// Whether a section puts a space in front: by "Prepend" or by "Metaspace".
bool AddsSpaceInFront(const Json& section);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GGUF_TOKEN_LISTS_H_
