// TokenModel: the inner stage of a tokenizer. It maps one pre-token (already normalised and split) to ids.
// Knows nothing of normalisers, splitting, added tokens or decoding (tokenizer.h).
#ifndef INLAY_CORE_TEXT_TOKEN_MODEL_H_
#define INLAY_CORE_TEXT_TOKEN_MODEL_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace inlay {

// Immutable after construction: every method may run from any number of threads at once.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the ids of `piece` (UTF-8, or any bytes where the model takes bytes) to `ids`. INVALID_ARGUMENT when the piece
  // cannot be spelled and the model has no unknown token.
  virtual absl::Status Encode(std::string_view piece, std::vector<int32_t>* ids) const = 0;

  // The token's text as the vocabulary spells it; empty for an id that is not in the vocabulary. Valid as long as the model.
  virtual std::string_view IdToToken(int32_t id) const = 0;
  virtual std::optional<int32_t> TokenToId(std::string_view token) const = 0;

  // One above the largest id.
  virtual int32_t vocab_size() const = 0;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_TOKEN_MODEL_H_
