// AddedTokens: the tokens that stand beside the model's vocabulary and are
// found in the text before it is cut. Source: Hugging Face tokenizers 0.2x,
// AddedVocabulary.
#ifndef INLAY_CORE_TEXT_ADDED_TOKENS_H_
#define INLAY_CORE_TEXT_ADDED_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/json/json.h"
#include "core/text/normalizer.h"
#include "core/text/token_model.h"

namespace inlay {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // only where no word character adjoins
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;
  bool normalized = false;  // matched in the normalised text
};

// A stretch of text: an added token (id), or what is left to the model (-1).
struct TextSegment {
  std::string_view text;
  int32_t id = -1;
};

// Immutable after Create.
class AddedTokens {
 public:
  // `list`: the file's "added_tokens", may be null. Ids are given as the
  // library gives them, whatever the file says: the model's where it has the
  // token, else the next one free above the model's `num_model_tokens` tokens
  // and the tokens before. `normalizer` may be null. INVALID_ARGUMENT for
  // malformed entries and for ids out of bounds.
  static absl::StatusOr<AddedTokens> Create(const Json* list,
                                            const TokenModel& model,
                                            size_t num_model_tokens,
                                            const Normalizer* normalizer);

  // Appends `text` cut at the tokens that are matched in raw text
  // (`normalized` false) or in normalised text. Linear in `text`, times the
  // length of the longest token at worst.
  void Split(std::string_view text, bool normalized,
             std::vector<TextSegment>* segments) const;
  // Whether Split could find anything at all.
  bool empty(bool normalized) const {
    return tries_[normalized ? 1 : 0].edges.empty();
  }

  // Whether Split() of a normalised text that is cut by NextWordCut() finds in
  // the parts what it finds in the whole.
  bool KeepsWords() const { return keeps_words_; }

  // nullptr when no added token has the id.
  const AddedToken* Find(int32_t id) const;
  std::optional<int32_t> TokenToId(std::string_view content) const;
  // One above the largest id, 0 without tokens.
  int32_t id_limit() const { return id_limit_; }

 private:
  // A trie over bytes as a table of edges: node << 8 | byte -> node.
  struct Trie {
    void Add(std::string_view key, int32_t token);
    // The longest key that starts at `pos`, as an index into tokens_, or -1;
    // its bytes in `bytes`.
    int32_t Longest(std::string_view text, size_t pos, size_t* bytes) const;
    std::unordered_map<uint64_t, uint32_t> edges;
    std::vector<int32_t> token_at;  // by node, -1 for none
    bool first_byte[256] = {};
  };

  int32_t NextId(const TokenModel& model, size_t num_model_tokens,
                 std::string_view content) const;
  absl::Status Add(AddedToken token, const Normalizer* normalizer);

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, int32_t> by_id_;  // to the index
  std::unordered_map<std::string, int32_t> by_content_;
  Trie tries_[2];
  bool keeps_words_ = true;
  int32_t id_limit_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_ADDED_TOKENS_H_
