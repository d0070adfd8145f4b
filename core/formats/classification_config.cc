#include "core/formats/classification_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/formats/describe.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int64_t kMaxLabels = int64_t{1} << 20;

struct NamedActivation {
  std::string_view name;  // of a class in torch.nn
  LabelActivation activation;
};
constexpr NamedActivation kActivations[] = {
    {"Identity", LabelActivation::kIdentity},
    {"Sigmoid", LabelActivation::kSigmoid},
    {"Softmax", LabelActivation::kSoftmax}};

absl::StatusOr<std::vector<std::string>> ReadNames(const Json& names) {
  if (!names.is_object() || names.empty() ||
      names.size() > static_cast<size_t>(kMaxLabels)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: id2label is of type %s with %d entries, allowed: an "
        "object of 1 to %d",
        names.type_name(), names.size(), kMaxLabels));
  }
  std::vector<std::string> labels(names.size());
  std::vector<bool> seen(names.size());
  for (const auto& [key, value] : names.items()) {
    size_t index = 0;
    if (!absl::SimpleAtoi(key, &index) || index >= labels.size() ||
        seen[index] || !value.is_string()) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: id2label has the entry %s, allowed: each of \"0\" to "
          "\"%d\" once, with a string",
          Quoted(key), labels.size() - 1));
    }
    seen[index] = true;
    labels[index] = value.get<std::string>();
  }
  return labels;
}

absl::StatusOr<std::vector<std::string>> ReadLabels(const Json& config) {
  const Json* names = JsonFind(config, "id2label");
  if (names != nullptr && !names->is_null()) return ReadNames(*names);
  INLAY_ASSIGN_OR_RETURN(const int64_t count,
                         JsonInt(config, "num_labels", 2, 1, kMaxLabels));
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) {
    labels.push_back(absl::StrCat("LABEL_", i));
  }
  return labels;
}

// The class that is named; "" : none.
absl::StatusOr<std::string> ActivationName(const Json& config) {
  // Of sentence-transformers before version 4.
  INLAY_ASSIGN_OR_RETURN(
      std::string name,
      JsonString(config, "sbert_ce_default_activation_function", ""));
  const Json* own = JsonFind(config, "sentence_transformers");
  if (own != nullptr && own->is_object()) {
    INLAY_ASSIGN_OR_RETURN(name, JsonString(*own, "activation_fn", name));
  }
  return name;
}

}  // namespace

absl::StatusOr<ClassificationDefaults> ReadClassificationDefaults(
    const Json& config) {
  ClassificationDefaults defaults;
  INLAY_ASSIGN_OR_RETURN(defaults.labels, ReadLabels(config));
  defaults.activation = defaults.labels.size() == 1
                            ? LabelActivation::kSigmoid
                            : LabelActivation::kIdentity;
  INLAY_ASSIGN_OR_RETURN(defaults.activation_name, ActivationName(config));
  const std::string& path = defaults.activation_name;
  if (path.empty()) return defaults;
  // "torch.nn.modules.activation.Sigmoid"
  const std::string_view name =
      std::string_view(path).substr(path.rfind('.') + 1);
  const auto* found =
      std::find_if(std::begin(kActivations), std::end(kActivations),
                   [&](const NamedActivation& a) { return a.name == name; });
  if (found == std::end(kActivations)) {
    defaults.unsupported = FormattedString("the activation %s", Quoted(path));
  } else {
    defaults.activation = found->activation;
  }
  return defaults;
}

std::vector<float> LabelScores(LabelActivation activation,
                               absl::Span<const float> logits) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (activation == LabelActivation::kIdentity || scores.empty()) return scores;
  const bool softmax = activation == LabelActivation::kSoftmax;
  const double most = *absl::c_max_element(logits);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - most);
  for (size_t i = 0; i < scores.size(); ++i) {
    const double x = logits[i];
    scores[i] = static_cast<float>(softmax ? std::exp(x - most) / sum
                                           : 1.0 / (1.0 + std::exp(-x)));
  }
  return scores;
}

}  // namespace inlay
