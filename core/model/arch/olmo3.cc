// OLMo 3 (arXiv:2512.13961): OLMo 2 with windows on three layers of four; YaRN
// stretches the full layers only.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> Olmo3Spec(const Json& json) {
  constexpr double kTheta = 500000.0;
  DecoderDefaults defaults;
  defaults.vocab_size = 50304;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 4096));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sliding,
                         ReadSlidingPattern(json, config.num_layers, 4));
  INLAY_ASSIGN_OR_RETURN(
      const RopeSpec full,
      ReadRope(json, config, {.theta = kTheta}, "full_attention"));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec local,
                         ReadSlidingRope(json, config, "rope_theta", kTheta));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, full);
  spec.ropes = {full, local};
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const bool slides = sliding[static_cast<size_t>(i)];
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    attention.joint_norms = true;
    attention.window = slides ? window : 0;
    attention.rope = slides ? 1 : 0;
    spec.layers.push_back(PostNormLayer(config, prefix, NormKind::kRms,
                                        attention,
                                        LlamaStyleMlp(config, prefix, false)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOlmo3(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Olmo3Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
