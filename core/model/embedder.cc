#include "core/model/embedder.h"

#include <variant>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Parts that give a row of a row.
bool IsByRows(const PartSpec& part) {
  return std::holds_alternative<MlpSpec>(part) ||
         std::holds_alternative<MoeSpec>(part) ||
         std::holds_alternative<MlpMoeSpec>(part) ||
         std::holds_alternative<PerLayerSpec>(part);
}

HeadLayerSpec DenseLayer(const DenseModule& module) {
  HeadLayerSpec layer;
  layer.linear = {module.linear(), module.outputs, module.inputs, module.bias};
  switch (module.activation) {
    case DenseActivation::kIdentity:
      break;
    case DenseActivation::kTanh:
      layer.tanh = true;
      break;
    case DenseActivation::kGelu:
      layer.activation = Activation::kGelu;
      break;
    case DenseActivation::kRelu:
      layer.activation = Activation::kRelu;
      break;
    case DenseActivation::kSilu:
      layer.activation = Activation::kSilu;
      break;
  }
  return layer;
}

}  // namespace

absl::Status DropHead(DecoderSpec* spec) {
  if (spec->embedding_projection.has_value()) {
    return absl::UnimplementedError(
        "config.json: \"architectures\" names the network without its head, "
        "whose embeddings have a projection; supported is the one with it");
  }
  spec->headless = true;
  spec->head.clear();
  spec->tied_head.clear();
  spec->head_bias = false;
  spec->head_layers.clear();
  return absl::OkStatus();
}

absl::Status SeeBothWays(std::string_view key, DecoderSpec* spec) {
  for (LayerSpec& layer : spec->layers) {
    for (BlockSpec& block : layer.blocks) {
      auto* attention = std::get_if<AttentionSpec>(&block.part);
      const bool can =
          attention == nullptr
              ? IsByRows(block.part)
              : attention->chunk == 0 && !attention->block_index.has_value();
      if (!can || spec->embedding_projection.has_value()) {
        return absl::UnimplementedError(FormattedString(
            "config.json: %s asks for attention both ways, which what "
            "this family consists of does not have",
            key));
      }
      if (attention == nullptr) continue;
      attention->causal = false;
      // Its own position counts, too.
      if (attention->window > 0) ++attention->window;
    }
  }
  spec->is_encoder = true;
  spec->head.clear();
  spec->tied_head.clear();
  spec->head_bias = false;
  spec->head_layers.clear();
  return absl::OkStatus();
}

absl::Status AddDense(absl::Span<const DenseModule> modules,
                      DecoderSpec* spec) {
  int64_t width = spec->hidden_size;
  for (const DenseModule& module : modules) {
    if (module.inputs != width) {
      const bool is_first = spec->pooled.empty();
      return absl::InvalidArgumentError(FormattedString(
          "the module %s has in_features %d, allowed: %s, which is %d",
          module.folder, module.inputs,
          is_first ? "hidden_size" : "what the one before it gives", width));
    }
    width = module.outputs;
    spec->pooled.push_back(DenseLayer(module));
  }
  return absl::OkStatus();
}

}  // namespace inlay
