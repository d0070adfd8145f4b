// Mixtral (arXiv:2401.04088): Mistral with a mixture of experts in place of
// each MLP.
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

absl::StatusOr<DecoderSpec> MixtralSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.intermediate_size = 14336;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(MoeConfig moe, ReadMoeConfig(json, "intermediate_size",
                                                      {8, 2, 14336, true}));
  moe.routing.normalised = true;  // whatever norm_topk_prob says
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, std::nullopt));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.theta = 1e6}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    attention.window = window;
    spec.layers.push_back(
        LlamaStyleLayer(config, prefix, NormKind::kRms, attention,
                        LlamaStyleMoe(config, moe, prefix + "block_sparse_moe.",
                                      "gate", false, {"w1", "w3", "w2"})));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMixtral(const Json& config,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, MixtralSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
