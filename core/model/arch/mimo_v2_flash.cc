// MiMo-V2-Flash (Xiaomi): windows with sinks and twice as
// many KV heads on five layers of six, values narrower than keys and scaled,
// part of each head rotated, experts as in DeepSeek-V3 behind one dense layer.
// Reads published files' keys and names, and those that transformers gives
// them (MiMoV2FlashConfig, which is the source of defaults).
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr int kMimoFullRope = 0;
constexpr int kMimoWindowRope = 1;
constexpr double kMimoRotated = 0.334;

struct MimoConfig {
  DecoderConfig decoder;
  DeepseekExperts experts;
  std::vector<bool> sliding;  // [num_layers]
  int window = 0;
  int window_kv_heads = 0;
  int value_dim = 0;
  float value_scale = 1.0f;
  bool bias = false;  // of q, k and v
  bool window_sinks = true;
  bool full_sinks = false;
  RopeSpec full_rope;
  RopeSpec window_rope;
};

absl::StatusOr<DecoderConfig> ReadMimoDecoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 152576;
  defaults.intermediate_size = 16384;
  defaults.num_layers = 48;
  defaults.num_heads = 64;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 192;
  defaults.max_positions = 131072;
  defaults.norm_epsilon = 1e-5;
  const bool is_published = JsonFind(json, "rms_norm_eps") == nullptr &&
                            JsonFind(json, "layernorm_epsilon") != nullptr;
  if (is_published) defaults.epsilon_key = "layernorm_epsilon";
  return ReadDecoderConfig(json, defaults);
}

// A list of 0 and 1 a layer; empty where the key is absent.
absl::StatusOr<std::vector<bool>> ReadLayerFlags(const Json& json,
                                                 const char* key,
                                                 int num_layers) {
  std::vector<bool> flags;
  const Json* list = JsonFind(json, key);
  if (list == nullptr) return flags;
  bool is_known =
      list->is_array() && list->size() == static_cast<size_t>(num_layers);
  for (size_t i = 0; is_known && i < list->size(); ++i) {
    is_known = (*list)[i] == 0 || (*list)[i] == 1;
    flags.push_back((*list)[i] == 1);
  }
  if (is_known) return flags;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s; it must be an array of %d numbers, each 0 or 1",
      key, ShownJson(*list), num_layers));
}

// layer_types, or hybrid_layer_pattern; the first layer is full where neither
// says, and each sixth.
absl::StatusOr<std::vector<bool>> ReadMimoSliding(const Json& json,
                                                  int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> sliding,
                         ReadSlidingLayers(json, num_layers));
  if (!sliding.empty()) return sliding;
  INLAY_ASSIGN_OR_RETURN(
      sliding, ReadLayerFlags(json, "hybrid_layer_pattern", num_layers));
  for (int i = static_cast<int>(sliding.size()); i < num_layers; ++i) {
    sliding.push_back(i > 0 && (i + 1) % 6 != 0);
  }
  return sliding;
}

// sliding_window_size counts the tokens before a query.
absl::StatusOr<int> ReadMimoWindow(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(const int window, ReadWindow(json, 129));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t before,
      JsonInt(json, "sliding_window_size", 0, 0, kMaxPositions - 1));
  return JsonFind(json, "sliding_window_size") == nullptr
             ? window
             : static_cast<int>(before) + 1;
}

absl::StatusOr<DeepseekExperts> ReadMimoExperts(const Json& json,
                                                int num_layers) {
  Json plain = json;
  plain.erase("moe_layer_freq");
  plain.erase("first_k_dense_replace");
  DeepseekDefaults defaults;
  defaults.moe = {256, 8, 2048, true};
  defaults.num_dense = 1;
  defaults.num_shared = 0;
  INLAY_ASSIGN_OR_RETURN(DeepseekExperts experts,
                         ReadDeepseekV3Experts(plain, defaults));
  if (experts.num_shared != 0) {
    return absl::UnimplementedError(FormattedString(
        "config.json: n_shared_experts is %d; supported here is 0",
        experts.num_shared));
  }
  INLAY_ASSIGN_OR_RETURN(
      experts.sparse,
      ReadLayerKinds(json, "mlp_layer_types", num_layers, "sparse", "dense"));
  if (!experts.sparse.empty()) return experts;
  INLAY_ASSIGN_OR_RETURN(experts.sparse,
                         ReadLayerFlags(json, "moe_layer_freq", num_layers));
  return experts;
}

// What published files say of windowed layers' heads once more.
absl::Status ExpectSame(const Json& json, const char* key, int64_t known) {
  INLAY_ASSIGN_OR_RETURN(const int64_t value,
                         JsonInt(json, key, known, 1, kMaxHidden));
  if (value == known) return absl::OkStatus();
  return absl::UnimplementedError(
      FormattedString("config.json: %s is %d; supported here is what all "
                      "layers have, %d",
                      key, value, known));
}

// Values are widened run by run (NarrowValues): few runs a head.
constexpr int64_t kMimoMostRuns = 4;

absl::Status ReadMimoHeads(const Json& json, MimoConfig* config) {
  const DecoderConfig& decoder = config->decoder;
  INLAY_ASSIGN_OR_RETURN(const int64_t value_dim,
                         JsonInt(json, "v_head_dim", 128, 1, kMaxHeadDim));
  if (value_dim > decoder.head_dim ||
      kMimoMostRuns * value_dim < decoder.head_dim) {
    return absl::UnimplementedError(FormattedString(
        "config.json: v_head_dim is %d; supported here is at most head_dim, "
        "%d, and at least one part in %d of it",
        value_dim, decoder.head_dim, kMimoMostRuns));
  }
  config->value_dim = static_cast<int>(value_dim);
  INLAY_RETURN_IF_ERROR(
      ExpectSame(json, "swa_num_attention_heads", decoder.num_heads));
  INLAY_RETURN_IF_ERROR(ExpectSame(json, "swa_head_dim", decoder.head_dim));
  INLAY_RETURN_IF_ERROR(ExpectSame(json, "swa_v_head_dim", value_dim));
  INLAY_ASSIGN_OR_RETURN(const int64_t kv_heads,
                         JsonInt(json, "swa_num_key_value_heads",
                                 2 * decoder.num_kv_heads, 1, kMaxHeads));
  INLAY_RETURN_IF_ERROR(CheckHeads(decoder.num_heads, kv_heads));
  config->window_kv_heads = static_cast<int>(kv_heads);
  return absl::OkStatus();
}

// Nested ones by layer type, or rope_theta and swa_rope_theta.
absl::Status ReadMimoRopes(const Json& json, MimoConfig* config) {
  RopeDefaults defaults = {.theta = 5e6, .partial = kMimoRotated};
  INLAY_ASSIGN_OR_RETURN(
      config->full_rope,
      ReadRope(json, config->decoder, defaults, "full_attention"));
  Json windows = json;
  windows.erase("rope_theta");
  const Json* theta = JsonFind(json, "swa_rope_theta");
  if (theta != nullptr) windows["rope_theta"] = *theta;
  defaults.theta = 1e4;
  INLAY_ASSIGN_OR_RETURN(
      config->window_rope,
      ReadRope(windows, config->decoder, defaults, "sliding_attention"));
  return absl::OkStatus();
}

absl::StatusOr<MimoConfig> ReadMimoConfig(const Json& json) {
  MimoConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadMimoDecoder(json));
  const int num_layers = config.decoder.num_layers;
  INLAY_RETURN_IF_ERROR(ReadMimoHeads(json, &config));
  INLAY_ASSIGN_OR_RETURN(config.experts, ReadMimoExperts(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.sliding, ReadMimoSliding(json, num_layers));
  INLAY_ASSIGN_OR_RETURN(config.window, ReadMimoWindow(json));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(config.window_sinks,
                         JsonBool(json, "add_swa_attention_sink_bias", true));
  INLAY_ASSIGN_OR_RETURN(config.full_sinks,
                         JsonBool(json, "add_full_attention_sink_bias", false));
  INLAY_ASSIGN_OR_RETURN(
      const std::optional<double> scale,
      ReadOptionalNumber(json, "attention_value_scale", 0.707, 1e-6, 1e6));
  config.value_scale = static_cast<float>(scale.value_or(1.0));
  INLAY_RETURN_IF_ERROR(ReadMimoRopes(json, &config));
  return config;
}

// Published names of sinks; transformers' where the files have those.
std::string SinksOf(const std::string& prefix, const WeightLoader& weights) {
  const std::string other = prefix + "self_attn.sinks";
  return weights.Has(other) ? other : prefix + "self_attn.attention_sink_bias";
}

AttentionSpec MimoAttention(const MimoConfig& config, const std::string& prefix,
                            bool slides, const WeightLoader& weights) {
  DecoderConfig decoder = config.decoder;
  if (slides) decoder.num_kv_heads = config.window_kv_heads;
  AttentionSpec spec = LlamaStyleAttention(decoder, prefix, config.bias, false);
  spec.value_dim = config.value_dim;
  spec.qkv[2].n = int64_t{decoder.num_kv_heads} * config.value_dim;
  spec.output.k = int64_t{decoder.num_heads} * config.value_dim;
  // What heads give is a sum of values.
  spec.context_scale = config.value_scale;
  spec.window = slides ? config.window : 0;
  spec.rope = slides ? kMimoWindowRope : kMimoFullRope;
  if (slides ? config.window_sinks : config.full_sinks) {
    spec.sinks = SinksOf(prefix, weights);
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMimoV2Flash(const Json& json,
                                                       ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const MimoConfig config, ReadMimoConfig(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.max_positions = UsablePositions(decoder.max_positions, config.full_rope);
  spec.ropes = {config.full_rope, config.window_rope};
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention = MimoAttention(
        config, prefix, config.sliding[static_cast<size_t>(i)], build.weights);
    PartSpec mlp = LlamaStyleMlp(decoder, prefix, false);
    if (config.experts.HasExperts(i)) {
      mlp = DeepseekMoe(decoder, config.experts, prefix + "mlp.", true);
    }
    spec.layers.push_back(LlamaStyleLayer(
        decoder, prefix, NormKind::kRms, std::move(attention), std::move(mlp)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
