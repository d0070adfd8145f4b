// ModernBERT (Warner et al., arXiv:2412.13663): an encoder with norms before
// its parts (the first layer's attention has none), rotary positions, gated
// MLPs, windows both ways in two layers of three, and no biases. Of heads the
// classifier of sequences is loaded. Its decoder (Ettin, arXiv:2507.11412) sees
// one way, half as far, and has a layer before its head. Source: transformers
// 5.
#include <string>
#include <utility>

#include "core/formats/classification_config.h"
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kFullRope = 0;
constexpr int kLocalRope = 1;

struct ModernBertConfig {
  DecoderConfig base;
  NormKind norm = NormKind::kLayerNoBias;
  bool attention_bias = false;
  bool mlp_bias = false;
  int64_t local_tokens = 0;  // that layers with a window see, about
  std::vector<bool> local;   // [num_layers]
  RopeSpec full_rope;
  RopeSpec local_rope;
};

absl::Status ReadLayers(const Json& json, ModernBertConfig* out) {
  const int num_layers = out->base.num_layers;
  INLAY_ASSIGN_OR_RETURN(out->local, ReadSlidingLayers(json, num_layers));
  // The older key, of kernels' windows, beside layer_types, of masks.
  INLAY_ASSIGN_OR_RETURN(
      const int64_t every,
      JsonInt(json, "global_attn_every_n_layers", 3, 1, kMaxLayers));
  if (out->local.empty()) {
    for (int i = 0; i < num_layers; ++i) out->local.push_back(i % every != 0);
  }
  // So many tokens in all: half of them before a token and half behind.
  INLAY_ASSIGN_OR_RETURN(out->local_tokens, JsonInt(json, "local_attention",
                                                    128, 0, kMaxPositions));
  return absl::OkStatus();
}

absl::Status ReadRopes(const Json& json, ModernBertConfig* out) {
  const Json* scaling = JsonFind(json, "rope_scaling");
  if (scaling != nullptr && !scaling->is_null()) {
    return absl::UnimplementedError(
        "config.json: rope_scaling is set; supported here is null: engines "
        "differ in whether they read it");
  }
  INLAY_ASSIGN_OR_RETURN(
      out->full_rope,
      ReadRope(WithUsualNames(json, {{"global_rope_theta", "rope_theta"}}),
               out->base, {.theta = 160000.0}, "full_attention"));
  // null: as the others (transformers 4; 5 has no base then).
  constexpr char kLocal[] = "local_rope_theta";
  const auto local = json.find(kLocal);
  const bool is_null = local != json.end() && local->is_null();
  INLAY_ASSIGN_OR_RETURN(
      out->local_rope,
      ReadSlidingRope(json, out->base, kLocal,
                      is_null ? out->full_rope.theta : 10000.0));
  return absl::OkStatus();
}

absl::StatusOr<ModernBertConfig> ReadModernBertConfig(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 50368;
  defaults.hidden_size = 768;
  defaults.intermediate_size = 1152;
  defaults.num_layers = 22;
  defaults.num_heads = 12;
  defaults.max_positions = 8192;
  defaults.norm_epsilon = 1e-5;
  defaults.activation = "gelu";
  defaults.epsilon_key = "norm_eps";
  defaults.activation_key = "hidden_activation";
  ModernBertConfig out;
  // Heads all have keys of their own and make up the width: decoders' keys for
  // that mean nothing here.
  Json own = json;
  own.erase("num_key_value_heads");
  own.erase("head_dim");
  INLAY_ASSIGN_OR_RETURN(out.base, ReadDecoderConfig(own, defaults));
  if (int64_t{out.base.num_heads} * out.base.head_dim != out.base.hidden_size) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: hidden_size is %d with num_attention_heads %d; it must "
        "be a multiple",
        out.base.hidden_size, out.base.num_heads));
  }
  INLAY_ASSIGN_OR_RETURN(const bool norm_bias,
                         JsonBool(json, "norm_bias", false));
  if (norm_bias) out.norm = NormKind::kLayer;
  INLAY_ASSIGN_OR_RETURN(out.attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(out.mlp_bias, JsonBool(json, "mlp_bias", false));
  INLAY_RETURN_IF_ERROR(ReadLayers(json, &out));
  INLAY_RETURN_IF_ERROR(ReadRopes(json, &out));
  return out;
}

LayerSpec ModernBertLayer(const ModernBertConfig& config, int index) {
  const DecoderConfig& base = config.base;
  const std::string prefix = LayerPrefix(index);
  const int64_t hidden = base.hidden_size;
  const bool is_local = config.local[static_cast<size_t>(index)];
  AttentionSpec attention = LlamaStyleAttention(base, prefix, false, false);
  attention.qkv = {
      {prefix + "attn.Wqkv", 3 * hidden, hidden, config.attention_bias}};
  attention.output = {prefix + "attn.Wo", hidden, hidden,
                      config.attention_bias};
  attention.rope = is_local ? kLocalRope : kFullRope;
  if (is_local) {
    attention.window = static_cast<int>(config.local_tokens / 2) + 1;
  }
  attention.causal = false;
  MlpSpec mlp;
  mlp.width = base.intermediate_size;
  mlp.activation = base.activation;
  mlp.gated = true;
  mlp.input = {{prefix + "mlp.Wi", 2 * mlp.width, hidden, config.mlp_bias}};
  mlp.output = {prefix + "mlp.Wo", hidden, mlp.width, config.mlp_bias};

  LayerSpec layer;
  layer.blocks.resize(2);
  layer.blocks[0].part = std::move(attention);
  // What the first layer reads is normalised already.
  if (index > 0) {
    layer.blocks[0].pre_norm = {config.norm, prefix + "attn_norm",
                                base.norm_epsilon};
  }
  layer.blocks[1].part = std::move(mlp);
  layer.blocks[1].pre_norm = {config.norm, prefix + "mlp_norm",
                              base.norm_epsilon};
  return layer;
}

DecoderSpec ModernBertSpec(const ModernBertConfig& config) {
  const DecoderConfig& base = config.base;
  DecoderSpec spec;
  spec.is_encoder = true;
  spec.optional_prefix = "model.";
  spec.vocab_size = base.vocab_size;
  spec.hidden_size = base.hidden_size;
  spec.max_positions = base.max_positions;
  spec.embedding = "model.embeddings.tok_embeddings.weight";
  spec.embedding_norm = {config.norm, "model.embeddings.norm",
                         base.norm_epsilon};
  spec.ropes = {config.full_rope, config.local_rope};
  for (int i = 0; i < base.num_layers; ++i) {
    spec.layers.push_back(ModernBertLayer(config, i));
  }
  spec.final_norm = {config.norm, "model.final_norm", base.norm_epsilon};
  return spec;
}

// A decoder's, whose layers have other attention.
DecoderSpec DecoderSpecOf(const ModernBertConfig& config) {
  DecoderSpec spec = ModernBertSpec(config);
  const int64_t hidden = config.base.hidden_size;
  spec.is_encoder = false;
  for (int i = 0; i < config.base.num_layers; ++i) {
    const std::string name = LayerPrefix(i) + "attn.";
    const auto layer = [&](const char* part) {
      return LinearSpec{name + part, hidden, hidden, config.attention_bias};
    };
    const bool is_local = config.local[static_cast<size_t>(i)];
    auto& attention = std::get<AttentionSpec>(
        spec.layers[static_cast<size_t>(i)].blocks[0].part);
    attention.qkv = {layer("q_proj"), layer("k_proj"), layer("v_proj")};
    attention.window = is_local ? static_cast<int>(config.local_tokens / 2) : 0;
    attention.causal = true;
  }
  return spec;
}

// norm(f(dense(x))).
absl::StatusOr<HeadLayerSpec> HeadLayer(const Json& json,
                                        const ModernBertConfig& config,
                                        const std::string& prefix) {
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "classifier_bias", false));
  const int64_t hidden = config.base.hidden_size;
  HeadLayerSpec layer;
  layer.linear = {prefix + "dense", hidden, hidden, bias};
  INLAY_ASSIGN_OR_RETURN(layer.activation,
                         ReadActivation(json, "classifier_activation", "gelu"));
  layer.norm = {config.norm, prefix + "norm", config.base.norm_epsilon};
  return layer;
}

absl::StatusOr<ClassifierSpec> ModernBertClassifier(
    const Json& json, const ModernBertConfig& config) {
  INLAY_ASSIGN_OR_RETURN(const ClassificationDefaults labels,
                         ReadClassificationDefaults(json));
  INLAY_ASSIGN_OR_RETURN(const std::string pooling,
                         JsonString(json, "classifier_pooling", "cls"));
  if (pooling != "cls" && pooling != "mean") {
    return absl::UnimplementedError(FormattedString(
        "config.json: classifier_pooling is \"%s\", supported: cls, mean",
        pooling));
  }
  ClassifierSpec spec;
  INLAY_ASSIGN_OR_RETURN(spec.layers.emplace_back(),
                         HeadLayer(json, config, "head."));
  spec.output = {"classifier", static_cast<int64_t>(labels.labels.size()),
                 config.base.hidden_size, true};
  spec.of_mean = pooling == "mean";
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeModernBert(const Json& json,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const ModernBertConfig config,
                         ReadModernBertConfig(json));
  DecoderSpec spec = ModernBertSpec(config);
  if (HasLabels(build)) {
    INLAY_ASSIGN_OR_RETURN(spec.classifier, ModernBertClassifier(json, config));
  }
  return BuildDecoder(spec, build);
}

absl::StatusOr<std::unique_ptr<Model>> MakeModernBertDecoder(
    const Json& json, ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(ModernBertConfig config, ReadModernBertConfig(json));
  // Half of local_attention, as transformers saves it; it overrides that.
  constexpr char kWindow[] = "sliding_window";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t window,
      JsonInt(json, kWindow, config.local_tokens / 2, 0, kMaxPositions / 2));
  if (window == 0 && JsonFind(json, kWindow) != nullptr) {
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is 0; supported here are 1 and more", kWindow));
  }
  if (window == 0) {
    return absl::UnimplementedError(FormattedString(
        "config.json: local_attention is %d; supported here are 2 and more",
        config.local_tokens));
  }
  config.local_tokens = 2 * window;
  DecoderSpec spec = DecoderSpecOf(config);
  INLAY_ASSIGN_OR_RETURN(spec.head_layers.emplace_back(),
                         HeadLayer(json, config, "lm_head."));
  INLAY_ASSIGN_OR_RETURN(const bool tied,
                         JsonBool(json, "tie_word_embeddings", true));
  INLAY_ASSIGN_OR_RETURN(spec.head_bias, JsonBool(json, "decoder_bias", true));
  (tied ? spec.tied_head : spec.head) = "decoder";
  return BuildDecoder(spec, build);
}

}  // namespace inlay
