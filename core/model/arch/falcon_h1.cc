// Falcon H1 (arXiv:2507.22448): attention and a Mamba 2 mixer side by side in
// each layer, their outputs added; multipliers everywhere. Source of names and
// defaults: transformers' FalconH1Config.
#include <cmath>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/mamba_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct FalconFactors {
  float embedding = 1, logits = 1, key = 1, attention_in = 1, attention_out = 1,
        ssm_in = 1, ssm_out = 1;
  std::vector<float> ssm, mlp;
};

absl::StatusOr<FalconFactors> ReadFalconFactors(const Json& json) {
  FalconFactors factors;
  const std::pair<const char*, float*> members[] = {
      {"embedding_multiplier", &factors.embedding},
      {"lm_head_multiplier", &factors.logits},
      {"key_multiplier", &factors.key},
      {"attention_in_multiplier", &factors.attention_in},
      {"attention_out_multiplier", &factors.attention_out},
      {"ssm_in_multiplier", &factors.ssm_in},
      {"ssm_out_multiplier", &factors.ssm_out}};
  for (const auto& [key, member] : members) {
    INLAY_ASSIGN_OR_RETURN(const double value,
                           JsonNumber(json, key, 1.0, -1e6, 1e6));
    *member = static_cast<float>(value);
  }
  INLAY_ASSIGN_OR_RETURN(factors.ssm, ReadFactors(json, "ssm_multipliers", 5));
  INLAY_ASSIGN_OR_RETURN(factors.mlp, ReadFactors(json, "mlp_multipliers", 2));
  return factors;
}

// Factors are taken past matrices to where they cost nothing, which biases
// would have to follow.
absl::Status CheckFalconBiases(const Json& json, const FalconFactors& factors) {
  const auto check = [&](std::string_view bias_key, float factor,
                         std::string_view factor_key) -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(const bool bias, JsonBool(json, bias_key, false));
    if (!bias || factor == 1.0f) return absl::OkStatus();
    return absl::UnimplementedError(FormattedString(
        "config.json: %s is true and %s %g; biases are supported where it is 1",
        bias_key, factor_key, factor));
  };
  INLAY_RETURN_IF_ERROR(
      check("attention_bias", factors.attention_in, "attention_in_multiplier"));
  INLAY_RETURN_IF_ERROR(check("attention_bias", factors.attention_out,
                              "attention_out_multiplier"));
  INLAY_RETURN_IF_ERROR(
      check("mamba_proj_bias", factors.ssm_in, "ssm_in_multiplier"));
  INLAY_RETURN_IF_ERROR(
      check("projectors_bias", factors.ssm_out, "ssm_out_multiplier"));
  return check("mlp_bias", factors.mlp[1], "mlp_multipliers[1]");
}

// What the mixer has besides sizes and names.
struct FalconMixer {
  int64_t inner = 0;
  bool norm = false;
  bool norm_first = true;
  bool output_bias = false;
};

absl::StatusOr<FalconMixer> ReadFalconMixer(const Json& json,
                                            int64_t hidden_size) {
  FalconMixer mixer;
  INLAY_ASSIGN_OR_RETURN(const int64_t expand,
                         JsonInt(json, "mamba_expand", 2, 1, 64));
  const auto inner = json.find("mamba_d_ssm");
  const bool expands = inner != json.end() && inner->is_null();
  INLAY_ASSIGN_OR_RETURN(
      mixer.inner,
      JsonInt(json, "mamba_d_ssm", expands ? expand * hidden_size : 1024, 1,
              kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(mixer.norm, JsonBool(json, "mamba_rms_norm", false));
  INLAY_ASSIGN_OR_RETURN(mixer.norm_first,
                         JsonBool(json, "mamba_norm_before_gate", true));
  INLAY_ASSIGN_OR_RETURN(mixer.output_bias,
                         JsonBool(json, "projectors_bias", false));
  return mixer;
}

absl::StatusOr<MambaSpec> FalconMamba(const Json& json,
                                      const DecoderConfig& config,
                                      const FalconMixer& mixer,
                                      const FalconFactors& factors,
                                      const std::string& prefix) {
  INLAY_ASSIGN_OR_RETURN(MambaSpec spec,
                         ReadMamba(json, MambaKeys(), config.hidden_size,
                                   mixer.inner, prefix + "mamba"));
  spec.output.bias = mixer.output_bias;
  if (mixer.norm) {
    spec.norm = {NormKind::kRms, prefix + "mamba.norm", config.norm_epsilon};
    spec.norm_groups = spec.num_groups;
    spec.gate_first = !mixer.norm_first;
  }
  for (size_t i = 0; i < spec.input_scales.size(); ++i) {
    spec.input_scales[i] = factors.ssm_in * factors.ssm[i];
  }
  spec.output_scale = factors.ssm_out;
  return spec;
}

// Factors of inputs, keys and outputs, where they come to the same.
AttentionSpec FalconAttention(const DecoderConfig& config,
                              const FalconFactors& factors, bool bias,
                              const std::string& prefix) {
  AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
  attention.scale *= factors.key * factors.attention_in * factors.attention_in;
  attention.context_scale = factors.attention_in * factors.attention_out;
  return attention;
}

MlpSpec FalconMlp(const DecoderConfig& config, const FalconFactors& factors,
                  bool bias, const std::string& prefix) {
  MlpSpec mlp = LlamaStyleMlp(config, prefix, bias);
  mlp.input[0].name = prefix + "feed_forward.gate_proj";
  mlp.input[1].name = prefix + "feed_forward.up_proj";
  mlp.output.name = prefix + "feed_forward.down_proj";
  mlp.gate_scale = factors.mlp[0];
  mlp.inner_scale = factors.mlp[1];
  return mlp;
}

absl::StatusOr<DecoderSpec> FalconH1Spec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128000;
  defaults.intermediate_size = 14336;
  defaults.num_kv_heads = 8;
  defaults.max_positions = 8192;
  defaults.norm_epsilon = 1e-5;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  INLAY_ASSIGN_OR_RETURN(const FalconFactors factors, ReadFalconFactors(json));
  INLAY_RETURN_IF_ERROR(CheckFalconBiases(json, factors));
  INLAY_ASSIGN_OR_RETURN(const FalconMixer mixer,
                         ReadFalconMixer(json, config.hidden_size));
  INLAY_ASSIGN_OR_RETURN(const bool attention_bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const bool mlp_bias,
                         JsonBool(json, "mlp_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, {}));
  DecoderSpec spec = LlamaStyleDecoder(config, NormKind::kRms);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.final_norm.name = "model.final_layernorm";
  spec.embedding_scale = factors.embedding;
  spec.logit_scale = factors.logits;
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const auto norm = [&](const char* name) {
      return NormSpec{NormKind::kRms, prefix + name, config.norm_epsilon};
    };
    AttentionMambaSpec both;
    both.attention = FalconAttention(config, factors, attention_bias, prefix);
    INLAY_ASSIGN_OR_RETURN(both.mamba,
                           FalconMamba(json, config, mixer, factors, prefix));
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(
        {.pre_norm = norm("input_layernorm"), .part = std::move(both)});
    layer.blocks.push_back(
        {.pre_norm = norm("pre_ff_layernorm"),
         .part = FalconMlp(config, factors, mlp_bias, prefix)});
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeFalconH1(const Json& config,
                                                    ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, FalconH1Spec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
