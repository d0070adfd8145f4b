// GroveMoE (InclusionAI, arXiv:2508.07785): Qwen 3 with experts, and beside
// those of a token the small ones of their groups, with the same weights, by
// the same router: a second mixture that has each group's expert as often as
// the group has experts. Source: the published modeling_grove_moe.py, whose
// constants are what the keys here assume that no published file has.
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct GroveExperts {
  MoeConfig moe;
  int64_t per_group = 2;
  int64_t group_width = 128;
  float group_scale = 0.05f;
};

absl::StatusOr<GroveExperts> ReadGroveExperts(const Json& json) {
  GroveExperts grove;
  INLAY_ASSIGN_OR_RETURN(grove.moe, ReadMoeConfig(json, "moe_intermediate_size",
                                                  {128, 8, 768, true}));
  grove.moe.routing.normalised = true;  // whatever norm_topk_prob says
  const int64_t experts = grove.moe.routing.num_experts;
  constexpr char kGroup[] = "num_experts_per_group";
  INLAY_ASSIGN_OR_RETURN(grove.per_group, JsonInt(json, kGroup, 2, 1, experts));
  if (experts % grove.per_group != 0) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: %s is %d; it must divide num_experts, %d",
                        kGroup, grove.per_group, experts));
  }
  INLAY_ASSIGN_OR_RETURN(
      grove.group_width,
      JsonInt(json, "parallel_expert_intermediate_size", 128, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "expert_group_scale", 0.05, 1e-6, 1e6));
  grove.group_scale = static_cast<float>(scale);
  return grove;
}

MoeSpec GroupExperts(const DecoderConfig& config, const GroveExperts& grove,
                     const std::string& prefix) {
  MoeConfig small = grove.moe;
  small.width = grove.group_width;
  small.routing.scale = grove.group_scale;
  MoeSpec spec = LlamaStyleMoe(config, small, prefix, "gate", false);
  for (size_t e = 0; e < spec.experts.size(); ++e) {
    spec.experts[e] =
        SharedExpert(config,
                     FormattedString("%schunk_experts.%d.", prefix,
                                     e / static_cast<size_t>(grove.per_group)),
                     small.width);
  }
  return spec;
}

absl::StatusOr<DecoderSpec> GroveMoeSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 6144;
  defaults.num_layers = 24;
  defaults.num_kv_heads = 4;
  defaults.max_positions = 32768;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const GroveExperts grove, ReadGroveExperts(json));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> sparse,
                         ReadSparseLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool slides,
                         JsonBool(json, "use_sliding_window", false));
  int window = 0;
  if (slides) {
    INLAY_ASSIGN_OR_RETURN(window, ReadWindow(json, 4096));
  }
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.shares_layers = true;  // routers, and experts of groups
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
    attention.window = window;
    AddHeadNorms(config, prefix, NormKind::kRms, &attention);
    LayerSpec layer =
        LlamaStyleLayer(config, prefix, NormKind::kRms, std::move(attention),
                        LlamaStyleMlp(config, prefix, false));
    if (sparse[static_cast<size_t>(i)]) {
      BlockSpec small = layer.blocks[1];
      small.part = GroupExperts(config, grove, prefix + "mlp.");
      // Both read the same: what this one gives is added at the end.
      layer.blocks[1].deferred = true;
      layer.blocks[1].part =
          LlamaStyleMoe(config, grove.moe, prefix + "mlp.", "gate", false);
      layer.blocks.push_back(std::move(small));
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeGroveMoe(const Json& json,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, GroveMoeSpec(json));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
