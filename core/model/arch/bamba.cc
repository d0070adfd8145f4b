// Bamba (IBM, Princeton, CMU, UIUC; 2024): Mamba 2 mixers, attention with rope
// on half of each head in few layers, MLPs. Source of names and defaults:
// transformers' BambaConfig.
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/mamba_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// attn_layer_indices, as a flag a layer.
absl::StatusOr<std::vector<bool>> BambaAttentionLayers(const Json& json,
                                                       int num_layers) {
  std::vector<bool> attends(static_cast<size_t>(num_layers), false);
  const Json* list = JsonFind(json, "attn_layer_indices");
  if (list == nullptr) return attends;
  bool is_list = list->is_array();
  for (size_t i = 0; is_list && i < list->size(); ++i) {
    const Json& layer = (*list)[i];
    is_list = layer.is_number_integer() && layer.get<int64_t>() >= 0 &&
              layer.get<int64_t>() < num_layers;
    if (is_list) attends[layer.get<size_t>()] = true;
  }
  if (is_list) return attends;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: attn_layer_indices is %s; it must be an array of layers "
      "from 0 to %d",
      ShownJson(*list), num_layers - 1));
}

// Half of each head, whatever partial_rotary_factor says outside of
// rope_parameters.
absl::StatusOr<RopeSpec> ReadBambaRope(const Json& json,
                                       const DecoderConfig& config) {
  const int64_t half = config.head_dim / 2;
  INLAY_ASSIGN_OR_RETURN(const int64_t rotary, JsonInt(json, "attn_rotary_emb",
                                                       half, 0, kMaxHeadDim));
  if (rotary != half) {
    return absl::UnimplementedError(FormattedString(
        "config.json: attn_rotary_emb is %d; supported here is half of a head, "
        "%d",
        rotary, half));
  }
  Json usual = json;
  usual["partial_rotary_factor"] = 0.5;
  return ReadRope(usual, config, {.partial = 0.5});
}

absl::StatusOr<MambaSpec> BambaMamba(const Json& json,
                                     const DecoderConfig& config,
                                     const std::string& prefix) {
  INLAY_ASSIGN_OR_RETURN(const int64_t expand,
                         JsonInt(json, "mamba_expand", 2, 1, 64));
  INLAY_ASSIGN_OR_RETURN(
      MambaSpec mamba,
      ReadMamba(json, MambaKeys(), config.hidden_size,
                expand * config.hidden_size, prefix + "mamba"));
  mamba.norm = {NormKind::kRms, prefix + "mamba.norm", config.norm_epsilon};
  mamba.norm_groups = mamba.num_groups;
  return mamba;
}

absl::StatusOr<DecoderSpec> BambaSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128000;
  defaults.intermediate_size = 14336;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 262144;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> attends,
                         BambaAttentionLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadBambaRope(json, config));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  spec.final_norm.name = "model.final_layernorm";
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    PartSpec mixer = LlamaStyleAttention(config, prefix, bias, bias);
    if (!attends[static_cast<size_t>(i)]) {
      INLAY_ASSIGN_OR_RETURN(mixer, BambaMamba(json, config, prefix));
    }
    MlpSpec mlp = LlamaStyleMlp(config, prefix, mlp_bias);
    mlp.input[0].name = prefix + "feed_forward.gate_proj";
    mlp.input[1].name = prefix + "feed_forward.up_proj";
    mlp.output.name = prefix + "feed_forward.down_proj";
    LayerSpec layer = LlamaStyleLayer(config, prefix, NormKind::kRms,
                                      std::move(mixer), std::move(mlp));
    layer.blocks[1].pre_norm.name = prefix + "pre_ff_layernorm";
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeBamba(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, BambaSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
