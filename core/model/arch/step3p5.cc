// Step 3.5 (StepFun; the text of Step 3.7, too): more heads in layers with
// windows than in others, over as many KV heads; norms of q and k; a gate of
// each head on what attention gives; experts chosen by sigmoid scores with a
// correction beside a shared one, after some dense layers; what gates give is
// cut off in some layers, behind their SiLU. Names of tensors are those of
// published files. Source: transformers' Step3p7TextModel; for files' keys
// core/formats/step_config.h.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/step_config.h"
#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr NormKind kStepNorm = NormKind::kRmsZeroCentred;

struct StepConfig {
  DecoderConfig decoder;
  int sliding_heads = 0;
  MoeConfig moe;
  int64_t shared_width = 0;
  std::vector<bool> sparse;
  std::vector<bool> sliding;
  int window = 0;
  std::vector<float> limits;  // of experts in each layer; 0: none
  std::vector<float> shared_limits;
  RopeSpec full_rope;
  RopeSpec window_rope;
};

absl::StatusOr<DecoderConfig> ReadStepDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 128815;
  defaults.intermediate_size = 11264;
  defaults.num_layers = 45;
  defaults.num_heads = 64;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_positions = 128000;
  defaults.norm_epsilon = 1e-5;
  return ReadDecoderConfig(json, defaults);
}

// What published files say of the network, which transformers has fixed.
absl::Status ExpectStep(const Json& json, const DecoderConfig& decoder) {
  for (const auto& [key, known] :
       {std::pair{"use_qk_norm", true}, std::pair{"use_moe", true},
        std::pair{"norm_expert_weight", true},
        std::pair{"use_head_wise_attn_gate", true},
        std::pair{"use_moe_router_bias", true}, std::pair{"sink", false},
        std::pair{"zero_centered", true}, std::pair{"attention_bias", false},
        std::pair{"mlp_bias", false},
        std::pair{"use_bidirectional_attention", false}}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(json, key, known));
  }
  INLAY_RETURN_IF_ERROR(ExpectName(json, "moe_router_activation", "sigmoid"));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "att_impl_type", "GQA"));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "hidden_act", "silu"));
  const std::pair<const char*, Json> numbers[] = {
      {"moe_every_n_layer", 1},
      {"moe_layer_offset", 0},
      {"use_rope_layers", Json::array()},
      {"query_pre_attn_scalar", decoder.head_dim}};
  for (const auto& [key, known] : numbers) {
    const Json* value = JsonFind(json, key);
    if (value == nullptr || *value == known) continue;
    return absl::UnimplementedError(
        FormattedString("config.json: %s is %s; supported here is %s", key,
                        ShownJson(*value), ShownJson(known)));
  }
  const Json* gating = JsonFind(json, "gating");
  if (gating == nullptr || *gating == true || *gating == "per-head") {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "config.json: gating is %s; supported here are true and per-head",
      ShownJson(*gating)));
}

// Numbers of layers; null and 0 mean none.
absl::StatusOr<std::vector<float>> ReadSwigluLimits(const Json& json,
                                                    const char* key,
                                                    int num_layers) {
  std::vector<float> limits(static_cast<size_t>(num_layers), 0.0f);
  const Json* list = JsonFind(json, key);
  for (size_t i = 0; list != nullptr && i < limits.size(); ++i) {
    if ((*list)[i].is_null()) continue;
    const Json one = {{key, (*list)[i]}};
    INLAY_ASSIGN_OR_RETURN(const double limit,
                           JsonNumber(one, key, 0.0, 0.0, 1e6));
    limits[i] = static_cast<float>(limit);
  }
  return limits;
}

absl::Status ReadStepExperts(const Json& json, StepConfig* config) {
  INLAY_ASSIGN_OR_RETURN(
      config->moe,
      ReadMoeConfig(json, "moe_intermediate_size", {288, 8, 1280, true}));
  RoutingDesc& routing = config->moe.routing;
  routing.score = RoutingScore::kSigmoid;
  routing.normalised = true;
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "moe_router_scaling_factor", 1.0, 1e-6, 1e6));
  routing.scale = static_cast<float>(scale);
  INLAY_ASSIGN_OR_RETURN(config->shared_width, JsonInt(json, "share_expert_dim",
                                                       1280, 1, kMaxHidden));
  const int num_layers = config->decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(
      config->sparse,
      ReadLayerKinds(json, "mlp_layer_types", num_layers, "sparse", "dense"));
  INLAY_ASSIGN_OR_RETURN(config->limits,
                         ReadSwigluLimits(json, "swiglu_limits", num_layers));
  INLAY_ASSIGN_OR_RETURN(
      config->shared_limits,
      ReadSwigluLimits(json, "swiglu_limits_shared", num_layers));
  return absl::OkStatus();
}

absl::Status ReadStepAttention(const Json& json, StepConfig* config) {
  const DecoderConfig& decoder = config->decoder;
  constexpr char kHeads[] = "num_sliding_attention_heads";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(json, kHeads, decoder.num_heads, 1, kMaxHeads));
  INLAY_RETURN_IF_ERROR(CheckHeads(heads, decoder.num_kv_heads));
  if (heads * decoder.head_dim > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: %s is %d of dimension %d; all heads together may have at "
        "most %d",
        kHeads, heads, decoder.head_dim, kMaxHidden));
  }
  config->sliding_heads = static_cast<int>(heads);
  INLAY_ASSIGN_OR_RETURN(config->sliding,
                         ReadSlidingLayers(json, decoder.num_layers));
  INLAY_ASSIGN_OR_RETURN(config->window, ReadWindow(json, std::nullopt));
  for (const bool slides : config->sliding) {
    if (!slides || config->window > 0) continue;
    return absl::InvalidArgumentError(
        "config.json: sliding_window is null or absent beside layers of "
        "sliding_attention");
  }
  INLAY_ASSIGN_OR_RETURN(
      config->full_rope,
      ReadRope(json, decoder, {.partial = 1.0}, "full_attention"));
  INLAY_ASSIGN_OR_RETURN(
      config->window_rope,
      ReadRope(json, decoder, {.partial = 1.0}, "sliding_attention"));
  return absl::OkStatus();
}

absl::StatusOr<StepConfig> ReadStepConfig(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const Json usual, WithUsualStepNames(json));
  StepConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadStepDecoder(usual));
  INLAY_RETURN_IF_ERROR(ExpectStep(usual, config.decoder));
  INLAY_RETURN_IF_ERROR(ReadStepExperts(usual, &config));
  INLAY_RETURN_IF_ERROR(ReadStepAttention(usual, &config));
  return config;
}

// Its gates are the second layer.
AttentionSpec StepAttention(const StepConfig& config, size_t layer,
                            const std::string& prefix) {
  DecoderConfig decoder = config.decoder;
  const bool slides = config.sliding[layer];
  if (slides) decoder.num_heads = config.sliding_heads;
  AttentionSpec attention = LlamaStyleAttention(decoder, prefix, false, false);
  AddHeadNorms(decoder, prefix, kStepNorm, &attention);
  attention.gated = attention.gate_apart = attention.head_gates = true;
  attention.qkv.insert(attention.qkv.begin() + 1,
                       LinearSpec{prefix + "self_attn.g_proj",
                                  decoder.num_heads, decoder.hidden_size});
  attention.window = slides ? config.window : 0;
  attention.rope = slides ? 1 : 0;
  return attention;
}

void SetStepLimit(float limit, MlpSpec* mlp) {
  if (limit == 0.0f) return;
  mlp->activation = Activation::kCappedSilu;
  mlp->limit = limit;
}

PartSpec StepMlp(const StepConfig& config, size_t layer,
                 const std::string& prefix) {
  if (!config.sparse[layer]) {
    MlpSpec mlp = LlamaStyleMlp(config.decoder, prefix, false);
    SetStepLimit(config.shared_limits[layer], &mlp);
    return mlp;
  }
  MoeSpec spec =
      LlamaStyleMoe(config.decoder, config.moe, prefix + "moe.", "gate", false);
  spec.correction = prefix + "moe.router_bias";
  for (MlpSpec& expert : spec.experts) {
    SetStepLimit(config.limits[layer], &expert);
  }
  spec.shared = SharedExpert(config.decoder, prefix + "share_expert.",
                             config.shared_width);
  SetStepLimit(config.shared_limits[layer], &*spec.shared);
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeStep3p5(const Json& json,
                                                   ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const StepConfig config, ReadStepConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, kStepNorm);
  spec.max_positions = UsablePositions(decoder.max_positions, config.full_rope);
  spec.ropes = {config.full_rope, config.window_rope};
  for (int i = 0; i < decoder.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const std::string prefix = LayerPrefix(i);
    spec.layers.push_back(LlamaStyleLayer(decoder, prefix, kStepNorm,
                                          StepAttention(config, layer, prefix),
                                          StepMlp(config, layer, prefix)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
