// JinaBERT (Günther et al., arXiv:2310.19923; jina-embeddings-v2 and Jina's
// first rerankers without their head): BERT with ALiBi, by the distance both
// ways, instead of learned positions, and gated MLPs without a bias before the
// gate. Some models' queries and keys have LayerNorms ("qk-devlin-norm",
// "qk-post-norm"), and the code model ("qk-post-norm") adds a layer's input to
// what its attention gives twice, with a norm each time. Which model it is its
// tensors say, no key does. Sources: the published modeling_bert.py of
// jina-bert-implementation and jina-bert-v2-qk-post-norm.
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/bert_style.h"
#include "core/model/decoder.h"
#include "core/model/hf_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kJinaLayers[] = "encoder.layer.";

absl::StatusOr<BertConfig> ReadJinaConfig(const Json& json) {
  Json usual = json;
  INLAY_ASSIGN_OR_RETURN(
      const std::string positions,
      JsonString(json, "position_embedding_type", "absolute"));
  if (positions != "alibi") {
    return absl::UnimplementedError(FormattedString(
        "config.json: position_embedding_type is \"%s\"; supported here is "
        "alibi",
        positions));
  }
  usual.erase("position_embedding_type");
  INLAY_ASSIGN_OR_RETURN(BertConfig config, ReadBertConfig(usual));
  INLAY_ASSIGN_OR_RETURN(const std::string kind,
                         JsonString(json, "feed_forward_type", "original"));
  if (kind != "geglu" && kind != "reglu") {
    return absl::UnimplementedError(FormattedString(
        "config.json: feed_forward_type is \"%s\"; supported here are geglu "
        "and reglu",
        kind));
  }
  // Of gates whatever hidden_act says.
  config.activation = kind == "geglu" ? Activation::kGelu : Activation::kRelu;
  return config;
}

// What the tensors of the first layer say; those of GGUF files have the names
// of the first models, but for gates that are apart and up with a gate before
// it.
struct JinaVariant {
  bool qk_norms = false;
  bool sums_twice = false;
  const char* gate = "mlp.gate_layer";  // "": `up` gives both, the gate first
  const char* up = "mlp.up_layer";
  const char* down = "mlp.wo";
  const char* norm = "mlp.layernorm";
};

JinaVariant FindJinaVariant(const ModelBuild& build) {
  const auto has = [&](const char* name) {
    const std::string tensor =
        FormattedString("%s0.%s.weight", kJinaLayers, name);
    return build.weights.Has(tensor) || build.weights.Has("bert." + tensor);
  };
  JinaVariant variant;
  variant.qk_norms = has("attention.self.layer_norm_q");
  variant.sums_twice = has("layer_norm_1");
  if (!has(variant.gate)) {
    variant.gate = "";
    if (!has(variant.up)) variant.up = "mlp.gated_layers";
  }
  if (has("mlp.down_layer")) variant.down = "mlp.down_layer";
  if (has("layer_norm_2")) variant.norm = "layer_norm_2";
  return variant;
}

void MakeJinaLayer(const BertConfig& config, const JinaVariant& variant,
                   const std::string& prefix, LayerSpec* layer) {
  BlockSpec& first = layer->blocks[0];
  auto& attention = std::get<AttentionSpec>(first.part);
  attention.alibi_scale = 1.0f;
  const auto norm = [&](const char* name) {
    return NormSpec{NormKind::kLayer, prefix + name, config.epsilon};
  };
  if (variant.qk_norms) {
    attention.q_norm = norm("attention.self.layer_norm_q");
    attention.k_norm = norm("attention.self.layer_norm_k");
    attention.joint_norms = true;
  }
  if (variant.sums_twice) {
    first.post_norm = std::move(first.sum_norm);
    first.post_norm_of_sum = true;
    first.sum_norm = norm("layer_norm_1");
  }
  auto& mlp = std::get<MlpSpec>(layer->blocks[1].part);
  mlp.gated = true;
  mlp.input.clear();
  const bool is_apart = *variant.gate != '\0';
  if (is_apart) {
    mlp.input.push_back({prefix + variant.gate, config.inner, config.hidden});
  }
  mlp.input.push_back(
      {prefix + variant.up, (is_apart ? 1 : 2) * config.inner, config.hidden});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeJinaBert(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const BertConfig config, ReadJinaConfig(json));
  const JinaVariant variant = FindJinaVariant(build);
  BertLayerNames names;
  names.output = variant.down;
  names.output_norm = variant.norm;
  DecoderSpec spec = BertStyleSpec(config, 0, "bert.", kJinaLayers, names);
  spec.position_embedding.clear();
  for (int64_t i = 0; i < config.layers; ++i) {
    MakeJinaLayer(config, variant,
                  FormattedString("bert.%s%d.", kJinaLayers, i),
                  &spec.layers[static_cast<size_t>(i)]);
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
