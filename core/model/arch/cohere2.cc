// Command R7B and later (Cohere 2; arXiv:2504.00698): attention and MLP read
// one LayerNorm side by side, rope on sliding layers only, scaled logits.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Cohere2Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 256000;
  defaults.hidden_size = 8192;
  defaults.intermediate_size = 22528;
  defaults.num_layers = 40;
  defaults.num_heads = 64;
  defaults.max_positions = 8192;
  defaults.norm_epsilon = 1e-5;
  defaults.epsilon_key = "layer_norm_eps";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const double logit_scale,
                         JsonNumber(json, "logit_scale", 0.0625, 1e-6, 1e6));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 4096));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                         ReadSlidingPattern(json, config.num_layers, 4));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kLayerNoBias);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.logit_scale = static_cast<float>(logit_scale);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.rope_style = RopeStyle::kInterleaved;
    if (sliding[static_cast<size_t>(i)]) {
      attention.window = window;
    } else {
      attention.rope = -1;
    }
    LayerSpec layer;
    layer.parallel = true;
    layer.pre_norm = {NormKind::kLayerNoBias, prefix + "input_layernorm",
                      config.norm_epsilon};
    layer.blocks.resize(2);
    layer.blocks[0].part = std::move(attention);
    layer.blocks[1].part = LlamaStyleMlp(config, prefix, false);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeCohere2(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Cohere2Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
