// ClassificationDefaults: what a model's files say of the labels of its
// classification head, and of what its logits become.
#ifndef INLAY_CORE_FORMATS_CLASSIFICATION_CONFIG_H_
#define INLAY_CORE_FORMATS_CLASSIFICATION_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/json/json.h"

namespace inlay {

// What scores are, of the logits of all labels.
enum class LabelActivation : uint8_t { kIdentity, kSigmoid, kSoftmax };

struct ClassificationDefaults {
  std::vector<std::string> labels;  // in the order of the logits
  LabelActivation activation = LabelActivation::kIdentity;
  std::string activation_name;  // as the files have it; "" : they do not say
  // What the files ask for instead and Inlay does not have; "" : nothing.
  std::string unsupported;
};

// Of a config.json: id2label, else num_labels, else 2 labels, as transformers
// has it; sentence-transformers' activation, which is the sigmoid of a single
// label and nothing of several where config.json names none. INVALID_ARGUMENT
// naming the key. Sources: transformers 5, sentence-transformers 5
// (CrossEncoder).
absl::StatusOr<ClassificationDefaults> ReadClassificationDefaults(
    const Json& config);

// The scores of `logits`, computed in double.
std::vector<float> LabelScores(LabelActivation activation,
                               absl::Span<const float> logits);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_CLASSIFICATION_CONFIG_H_
