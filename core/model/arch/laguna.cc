// Laguna (Poolside's M.1, XS.2 and S): as many heads as a layer wants over KV
// heads of one number, norms of q and k, gates of softplus on what attention
// gives, of whole heads or of each element; windows with a rope of their own on
// some layers; experts chosen by sigmoid scores with a correction beside a
// shared one, after some dense layers. Names of tensors are those of published
// files, where transformers has its own. Source: transformers' LagunaConfig and
// its modules; llama.cpp's src/models/laguna.cpp for what M.1 has.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kLagunaFullRope = 0;
constexpr int kLagunaWindowRope = 1;

struct LagunaExperts {
  MoeConfig moe;
  int64_t shared_width = 0;
  float softcap = 0.0f;
  std::vector<bool> sparse;
};

struct LagunaConfig {
  DecoderConfig decoder;
  LagunaExperts experts;
  std::vector<int> heads;  // of each layer
  std::vector<bool> sliding;
  int window = 0;
  bool bias = false;
  bool head_gates = true;
  RopeSpec full_rope;
  RopeSpec window_rope;
};

absl::StatusOr<DecoderConfig> ReadLagunaDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 100352;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 8192;
  defaults.num_layers = 40;
  defaults.num_heads = 48;
  defaults.num_kv_heads = 8;
  defaults.head_dim = 128;
  defaults.max_positions = 131072;
  return ReadDecoderConfig(json, defaults);
}

absl::Status LagunaNotKnown(const Json& json, const char* key,
                            std::string_view known) {
  return absl::UnimplementedError(
      FormattedString("config.json: %s is %s; supported here is %s", key,
                      ShownJson(json[key]), known));
}

// Other engines read these where there are no mlp_layer_types, transformers
// does not: they must not say anything else than it assumes.
absl::Status ExpectNoSparseStep(const Json& json) {
  const Json* dense = JsonFind(json, "mlp_only_layers");
  if (dense != nullptr && *dense != Json::array({0})) {
    return LagunaNotKnown(json, "mlp_only_layers",
                          "[0], or mlp_layer_types instead");
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t step,
      JsonInt(json, "decoder_sparse_step", 1, 1, kMaxLayers));
  if (step == 1) return absl::OkStatus();
  return LagunaNotKnown(json, "decoder_sparse_step",
                        "1, or mlp_layer_types instead");
}

absl::StatusOr<LagunaExperts> ReadLagunaExperts(const Json& json,
                                                int num_layers) {
  LagunaExperts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {256, 8, 512, true}));
  // What transformers does whatever the key says.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "norm_topk_prob", true));
  INLAY_RETURN_IF_ERROR(
      ExpectFlag(json, "moe_apply_router_weight_on_input", false));
  // Of other engines' readers; transformers has sigmoid scores alone.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "moe_router_use_sigmoid", true));
  INLAY_RETURN_IF_ERROR(ExpectName(json, "moe_router_score_func", "sigmoid"));
  RoutingDesc& routing = experts.moe.routing;
  routing.score = RoutingScore::kSigmoid;
  routing.normalised = true;
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "moe_routed_scaling_factor", 1.0, 1e-6, 1e6));
  routing.scale = static_cast<float>(scale);
  INLAY_ASSIGN_OR_RETURN(
      const double cap,
      JsonNumber(json, "moe_router_logit_softcapping", 0.0, 0.0, 1e6));
  experts.softcap = static_cast<float>(cap);
  INLAY_ASSIGN_OR_RETURN(
      experts.shared_width,
      JsonInt(json, "shared_expert_intermediate_size", 512, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse,
      ReadLayerKinds(json, "mlp_layer_types", num_layers, "sparse", "dense"));
  if (!experts.sparse.empty()) return experts;
  INLAY_RETURN_IF_ERROR(ExpectNoSparseStep(json));
  for (int i = 0; i < num_layers; ++i) experts.sparse.push_back(i > 0);
  return experts;
}

// num_attention_heads_per_layer, or num_attention_heads for all.
absl::StatusOr<std::vector<int>> ReadLagunaHeads(const Json& json,
                                                 const DecoderConfig& decoder) {
  constexpr char kKey[] = "num_attention_heads_per_layer";
  const auto count = static_cast<size_t>(decoder.num_layers);
  std::vector<int> heads(count, decoder.num_heads);
  const Json* list = JsonFind(json, kKey);
  if (list == nullptr) return heads;
  bool is_known = list->is_array() && list->size() == count;
  for (size_t i = 0; is_known && i < count; ++i) {
    const Json& value = (*list)[i];
    is_known = value.is_number_integer() && value.get<int64_t>() >= 1 &&
               value.get<int64_t>() <= kMaxHeads;
    if (!is_known) break;
    heads[i] = static_cast<int>(value.get<int64_t>());
    INLAY_RETURN_IF_ERROR(CheckHeads(heads[i], decoder.num_kv_heads));
    if (int64_t{heads[i]} * decoder.head_dim > kMaxHidden) {
      return absl::InvalidArgumentError(FormattedString(
          "config.json: %s has %d heads of dimension %d; all heads together "
          "may have at most %d",
          kKey, heads[i], decoder.head_dim, kMaxHidden));
    }
  }
  if (is_known) return heads;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s; it must be an array of %d numbers from 1 to %d",
      kKey, ShownJson(*list), count, kMaxHeads));
}

// `gating` where published: true or "per-head", or "per-element"; newer files
// say it of each layer (`gating_types`), too.
absl::StatusOr<bool> ReadHeadGates(const Json& json) {
  const auto head_gates = [](const Json& value) -> std::optional<bool> {
    if (value == true || value == "per-head" || value == "per_head") {
      return true;
    }
    if (value == "per-element" || value == "per_element") return false;
    return std::nullopt;
  };
  const Json* gating = JsonFind(json, "gating");
  const std::optional<bool> found =
      gating == nullptr ? true : head_gates(*gating);
  if (!found.has_value()) {
    return LagunaNotKnown(json, "gating", "true, per-head or per-element");
  }
  const Json* types = JsonFind(json, "gating_types");
  if (types == nullptr) return *found;
  bool is_same = types->is_array();
  for (size_t i = 0; is_same && i < types->size(); ++i) {
    is_same = head_gates((*types)[i]) == found;
  }
  if (!is_same) {
    return LagunaNotKnown(json, "gating_types", "what gating says");
  }
  return *found;
}

// rope_parameters by the layers' type; what stands outside of it is not read.
absl::Status ReadLagunaRopes(const Json& json, LagunaConfig* config) {
  Json ropes = json;
  for (const char* key :
       {"rope_theta", "rope_scaling", "partial_rotary_factor"}) {
    ropes.erase(key);
  }
  const Json* parameters = JsonFind(ropes, "rope_parameters");
  const bool is_nested = parameters != nullptr && parameters->is_object() &&
                         parameters->contains("full_attention");
  if (parameters == nullptr) {
    ropes["rope_parameters"] = {
        {"full_attention", {{"partial_rotary_factor", 0.5}}},
        {"sliding_attention", Json::object()}};
  } else if (!is_nested) {
    return LagunaNotKnown(json, "rope_parameters",
                          "an object with full_attention");
  }
  INLAY_ASSIGN_OR_RETURN(
      config->full_rope,
      ReadRope(ropes, config->decoder, {.theta = 500000.0, .partial = 1.0},
               "full_attention"));
  config->window_rope = config->full_rope;
  const bool has_windows =
      JsonFind(ropes["rope_parameters"], "sliding_attention") != nullptr;
  for (const bool slides : config->sliding) {
    if (!slides || has_windows) continue;
    return LagunaNotKnown(json, "rope_parameters",
                          "an object with sliding_attention, too");
  }
  if (!has_windows) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(
      config->window_rope,
      ReadRope(ropes, config->decoder, {.theta = 10000.0, .partial = 1.0},
               "sliding_attention"));
  return absl::OkStatus();
}

// Read where a layer slides alone: M.1, which has no such layers, says 0.
absl::StatusOr<int> ReadLagunaWindow(const Json& json,
                                     const std::vector<bool>& sliding) {
  if (std::find(sliding.begin(), sliding.end(), true) == sliding.end()) {
    return 0;
  }
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 512));
  if (window > 0) return window;
  return absl::InvalidArgumentError(
      "config.json: sliding_window is null beside layers of "
      "sliding_attention");
}

absl::StatusOr<LagunaConfig> ReadLagunaConfig(const Json& json) {
  LagunaConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadLagunaDecoder(json));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config.experts, ReadLagunaExperts(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.heads, ReadLagunaHeads(json, config.decoder));
  INLAY_ASSIGN_OR_RETURN(config.sliding, ReadSlidingLayers(json, num_layers));
  config.sliding.resize(static_cast<size_t>(num_layers), false);
  INLAY_ASSIGN_OR_RETURN(config.window, ReadLagunaWindow(json, config.sliding));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.head_gates, ReadHeadGates(json));
  // Of other engines' readers; transformers has neither.
  for (const char* key : {"qkv_bias", "swa_attention_sink_enabled"}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(json, key, false));
  }
  INLAY_RETURN_IF_ERROR(ReadLagunaRopes(json, &config));
  return config;
}

// Its gates are the second layer.
AttentionSpec LagunaAttention(const LagunaConfig& config, size_t layer,
                              const std::string& prefix) {
  DecoderConfig decoder = config.decoder;
  decoder.num_heads = config.heads[layer];
  AttentionSpec attention =
      LlamaStyleAttention(decoder, prefix, config.bias, config.bias);
  AddHeadNorms(decoder, prefix, NormKind::kRms, &attention);
  attention.gated = attention.gate_apart = true;
  attention.gate = GateFunction::kSoftplus;
  attention.head_gates = config.head_gates;
  LinearSpec gate = attention.qkv.front();
  gate.name = prefix + "self_attn.g_proj";
  gate.bias = false;
  if (config.head_gates) gate.n = decoder.num_heads;
  attention.qkv.insert(attention.qkv.begin() + 1, std::move(gate));
  const bool slides = config.sliding[layer];
  attention.window = slides ? config.window : 0;
  attention.rope = slides ? kLagunaWindowRope : kLagunaFullRope;
  return attention;
}

MoeSpec LagunaMoe(const LagunaConfig& config, const std::string& prefix) {
  const LagunaExperts& experts = config.experts;
  MoeSpec spec =
      LlamaStyleMoe(config.decoder, experts.moe, prefix, "gate", false);
  spec.router_softcap = experts.softcap;
  spec.correction = prefix + "experts.e_score_correction_bias";
  spec.shared = SharedExpert(config.decoder, prefix + "shared_expert.",
                             experts.shared_width);
  return spec;
}

absl::StatusOr<DecoderSpec> LagunaSpec(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const LagunaConfig config, ReadLagunaConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.full_rope);
  spec.ropes = {config.full_rope, config.window_rope};
  for (int i = 0; i < decoder.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const std::string prefix = LayerPrefix(i);
    PartSpec mlp = LlamaStyleMlp(decoder, prefix, false);
    if (config.experts.sparse[layer]) mlp = LagunaMoe(config, prefix + "mlp.");
    spec.layers.push_back(LlamaStyleLayer(
        decoder, prefix, NormKind::kRms, LagunaAttention(config, layer, prefix),
        std::move(mlp)));
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeLaguna(const Json& config,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, LagunaSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
