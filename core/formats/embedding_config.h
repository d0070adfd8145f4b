// EmbeddingDefaults: how a model's hidden states become one vector, as
// sentence-transformers' files say it.
#ifndef INLAY_CORE_FORMATS_EMBEDDING_CONFIG_H_
#define INLAY_CORE_FORMATS_EMBEDDING_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace inlay {

// Of the last hidden states of a sequence's tokens.
enum class Pooling : uint8_t {
  kNone,
  kMean,
  kCls,   // the first token's
  kLast,  // the last token's
};

struct EmbeddingDefaults {
  Pooling pooling = Pooling::kNone;  // kNone: the files do not say
  bool normalise = false;            // to length 1
  // What they ask for and Inlay does not have, for a message; "" : nothing.
  std::string unsupported;
};

// Reads modules.json of `directory` and the configuration of the pooling that
// it names; all defaults where there is none. INVALID_ARGUMENT naming file and
// key when one is malformed. Source: sentence-transformers 5.
absl::StatusOr<EmbeddingDefaults> ReadEmbeddingDefaults(
    const std::string& directory);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_EMBEDDING_CONFIG_H_
