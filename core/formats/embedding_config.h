// EmbeddingDefaults: how a model's hidden states become one vector, as
// sentence-transformers' files say it.
#ifndef INLAY_CORE_FORMATS_EMBEDDING_CONFIG_H_
#define INLAY_CORE_FORMATS_EMBEDDING_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace inlay {

// Of the last hidden states of a sequence's tokens.
enum class Pooling : uint8_t {
  kNone,
  kMean,
  kCls,   // the first token's
  kLast,  // the last token's
};

enum class DenseActivation : uint8_t { kIdentity, kTanh, kGelu, kRelu, kSilu };

// A layer behind the pooling: tensors FOLDER.linear.weight [outputs, inputs]
// and FOLDER.linear.bias [outputs].
struct DenseModule {
  std::string folder;
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool bias = true;
  DenseActivation activation = DenseActivation::kIdentity;

  std::string linear() const { return folder + ".linear"; }
};

struct EmbeddingDefaults {
  Pooling pooling = Pooling::kNone;  // kNone: the files do not say
  std::vector<DenseModule> dense;    // one after another
  bool normalise = false;            // to length 1, after all that
  // What they ask for and Inlay does not have, for a message; "" : nothing.
  std::string unsupported;
};

// Reads modules.json of `directory` and the configuration of the modules that
// it names; all defaults where there is none. INVALID_ARGUMENT naming file and
// key when one is malformed. Source: sentence-transformers 5.
absl::StatusOr<EmbeddingDefaults> ReadEmbeddingDefaults(
    const std::string& directory);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_EMBEDDING_CONFIG_H_
