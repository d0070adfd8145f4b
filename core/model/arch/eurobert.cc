// EuroBERT (Boizard et al., arXiv:2503.05500): Llama's network, in which every
// token sees all others. Of heads the classifier of sequences is loaded, of the
// first token or of the mean. Source: transformers 5.24.
#include <string>
#include <utility>

#include "core/formats/classification_config.h"
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "core/model/embedder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<ClassifierSpec> EuroBertClassifier(const Json& json,
                                                  int64_t hidden) {
  INLAY_ASSIGN_OR_RETURN(const ClassificationDefaults labels,
                         ReadClassificationDefaults(json));
  INLAY_ASSIGN_OR_RETURN(const std::string older,
                         JsonString(json, "clf_pooling", "late"));
  INLAY_ASSIGN_OR_RETURN(const std::string pooling,
                         JsonString(json, "classifier_pooling", older));
  if (pooling != "bos" && pooling != "mean") {
    return absl::UnimplementedError(FormattedString(
        "config.json: classifier_pooling is \"%s\", supported: bos, mean",
        pooling));
  }
  ClassifierSpec spec;
  HeadLayerSpec& dense = spec.layers.emplace_back();
  dense.linear = {"dense", hidden, hidden, true};
  dense.activation = Activation::kGelu;
  spec.output = {"classifier", static_cast<int64_t>(labels.labels.size()),
                 hidden, true};
  spec.of_mean = pooling == "mean";
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeEuroBert(const Json& json,
                                                    ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128256;
  defaults.hidden_size = 768;
  defaults.intermediate_size = 3072;
  defaults.num_layers = 12;
  defaults.num_heads = 12;
  defaults.max_positions = 8192;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(DecoderSpec spec, LlamaStyleSpec(json, config, {}));
  INLAY_RETURN_IF_ERROR(SeeBothWays("model_type", &spec));
  if (HasLabels(build)) {
    INLAY_ASSIGN_OR_RETURN(spec.classifier,
                           EuroBertClassifier(json, config.hidden_size));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
