// GLM-4.7-Flash: GLM-4.5's experts behind DeepSeek's latent attention
// (arXiv:2405.04434). Source of names and defaults: transformers'
// Glm4MoeLiteConfig.
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<Model>> MakeGlm4MoeLite(const Json& json,
                                                       ModelBuild& build) {
  DecoderDefaults defaults;
  defaults.vocab_size = 154880;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 10240;
  defaults.num_layers = 47;
  defaults.num_heads = 20;
  defaults.head_dim = 64;  // not used: latent attention has its own
  defaults.max_positions = 202752;
  defaults.norm_epsilon = 1e-5;
  DeepseekDefaults experts_defaults;
  experts_defaults.moe = {64, 4, 1536, true};
  experts_defaults.scale = 1.8;
  LatentConfig latent_defaults;
  latent_defaults.query_rank = 768;
  latent_defaults.key_dim = 192;
  latent_defaults.value_dim = 256;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekV3Experts(json, experts_defaults));
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse, ReadLayerKinds(json, "mlp_layer_types", config.num_layers,
                                     "sparse", "dense"));
  INLAY_ASSIGN_OR_RETURN(
      const LatentConfig latent,
      ReadLatentConfig(json, config.num_heads, latent_defaults));
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec,
                         DeepseekDecoder(json, config, latent, experts, true));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
