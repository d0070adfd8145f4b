// Jamba (AI21, arXiv:2403.19887, arXiv:2408.12570): Mamba 1 mixers with norms
// of dt, B and C, attention without rope in few layers, mixtures of experts in
// some. Source of names and defaults: transformers' JambaConfig.
#include <string>
#include <utility>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/arch/selective_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Which layers are of a kind: one in so many, from one on.
struct Every {
  int64_t period = 1;
  int64_t offset = 0;
  bool Has(int layer) const { return layer % period == offset; }
};

absl::StatusOr<Every> ReadEvery(const Json& json, const std::string& kind,
                                int64_t period, int64_t offset) {
  const std::string period_key = kind + "_layer_period";
  const std::string offset_key = kind + "_layer_offset";
  Every every;
  INLAY_ASSIGN_OR_RETURN(every.period,
                         JsonInt(json, period_key, period, 1, kMaxLayers));
  INLAY_ASSIGN_OR_RETURN(every.offset,
                         JsonInt(json, offset_key, offset, 0, kMaxLayers));
  if (every.offset < every.period) return every;
  return absl::InvalidArgumentError(
      FormattedString("config.json: %s is %d; it must be below %s, %d",
                      offset_key, every.offset, period_key, every.period));
}

absl::StatusOr<SelectiveSpec> JambaMixer(const Json& json,
                                         const DecoderConfig& config,
                                         const std::string& prefix) {
  INLAY_ASSIGN_OR_RETURN(const int64_t expand,
                         JsonInt(json, "mamba_expand", 2, 1, 64));
  const int64_t width = expand * config.hidden_size;
  if (width > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: mamba_expand is %d with a hidden_size of %d; mixers may "
        "be %d wide",
        expand, config.hidden_size, kMaxHidden));
  }
  INLAY_ASSIGN_OR_RETURN(
      SelectiveSpec mixer,
      ReadSelective(json,
                    {"mamba_d_state", "mamba_d_conv", "mamba_dt_rank",
                     "mamba_conv_bias", "mamba_proj_bias"},
                    config.hidden_size, width, prefix + "mamba"));
  const auto norm = [&](const char* name) {
    return NormSpec{NormKind::kRms, prefix + "mamba." + name,
                    config.norm_epsilon};
  };
  mixer.dt_norm = norm("dt_layernorm");
  mixer.b_norm = norm("b_layernorm");
  mixer.c_norm = norm("c_layernorm");
  return mixer;
}

// Of one expert: none, that is an MLP.
absl::StatusOr<MoeConfig> ReadJambaExperts(const Json& json) {
  for (const char* key : {"num_experts", "num_local_experts"}) {
    const Json* count = JsonFind(json, key);
    if (count != nullptr && *count == 1) return MoeConfig();
  }
  INLAY_ASSIGN_OR_RETURN(MoeConfig moe, ReadMoeConfig(json, "intermediate_size",
                                                      {16, 2, 14336, false}));
  moe.routing.normalised = false;  // whatever a key of others says
  return moe;
}

PartSpec JambaMlp(const DecoderConfig& config, const MoeConfig& moe,
                  bool may_mix, const std::string& prefix) {
  if (may_mix && moe.routing.num_experts > 1) {
    return LlamaStyleMoe(config, moe, prefix + "feed_forward.", "router",
                         false);
  }
  MlpSpec mlp = LlamaStyleMlp(config, prefix, false);
  mlp.input[0].name = prefix + "feed_forward.gate_proj";
  mlp.input[1].name = prefix + "feed_forward.up_proj";
  mlp.output.name = prefix + "feed_forward.down_proj";
  return mlp;
}

absl::StatusOr<DecoderSpec> JambaSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 65536;
  defaults.intermediate_size = 14336;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 262144;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  INLAY_ASSIGN_OR_RETURN(const Every attends, ReadEvery(json, "attn", 8, 4));
  INLAY_ASSIGN_OR_RETURN(const Every mixes, ReadEvery(json, "expert", 2, 1));
  INLAY_ASSIGN_OR_RETURN(const MoeConfig moe, ReadJambaExperts(json));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.final_norm.name = "model.final_layernorm";
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = LlamaStyleAttention(config, prefix, false, false);
    attention.rope = -1;
    PartSpec mixer = std::move(attention);
    if (!attends.Has(i)) {
      INLAY_ASSIGN_OR_RETURN(mixer, JambaMixer(json, config, prefix));
    }
    LayerSpec layer =
        LlamaStyleLayer(config, prefix, NormKind::kRms, std::move(mixer),
                        JambaMlp(config, moe, mixes.Has(i), prefix));
    layer.blocks[1].pre_norm.name = prefix + "pre_ff_layernorm";
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeJamba(const Json& config,
                                                 ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, JambaSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
