// OLMo Hybrid (AllenAI): OLMo 3's layers, norms after their parts and without
// windows, and three times as many of gated DeltaNet with norms before them;
// no rope where rope_theta is null, as in published files. Source of names and
// defaults: transformers' OlmoHybridConfig and its modules.
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of the norm of each head's values, whatever rms_norm_eps says.
constexpr float kDeltaNormEpsilon = 1e-5f;

struct OlmoHybridConfig {
  DecoderConfig decoder;
  std::vector<bool> attends;
  DeltaSpec delta;  // sizes, no names
  bool bias = false;
  bool rotates = false;
  RopeSpec rope;
};

DecoderDefaults OlmoHybridDefaults() {
  DecoderDefaults defaults;
  defaults.vocab_size = 100352;
  defaults.hidden_size = 3840;
  defaults.num_heads = 30;
  defaults.max_positions = 65536;
  return defaults;
}

// rope_theta, in rope_parameters or beside it, is there and null.
bool HasNoRope(const Json& json) {
  const Json* rope = JsonFind(json, "rope_parameters");
  const Json& owner =
      rope != nullptr && rope->is_object() && rope->contains("rope_theta")
          ? *rope
          : json;
  return owner.contains("rope_theta") && owner["rope_theta"].is_null();
}

absl::StatusOr<std::vector<bool>> ReadOlmoAttention(const Json& json,
                                                    int num_layers) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> attends,
                         ReadLayerKinds(json, "layer_types", num_layers,
                                        "full_attention", "linear_attention"));
  if (!attends.empty()) return attends;
  for (int i = 0; i < num_layers; ++i) attends.push_back(i % 4 == 3);
  // There is one at least.
  if (num_layers < 4) attends.back() = true;
  return attends;
}

absl::StatusOr<DeltaSpec> ReadOlmoDelta(const Json& json,
                                        const DecoderConfig& decoder) {
  const auto read = [&](const char* key, int64_t fallback, int64_t most) {
    return JsonInt(json, key, fallback, 1, most);
  };
  INLAY_ASSIGN_OR_RETURN(
      const int64_t key_heads,
      read("linear_num_key_heads", decoder.num_heads, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      read("linear_num_value_heads", decoder.num_heads, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t key_dim,
      read("linear_key_head_dim", decoder.hidden_size * 3 / 4 / key_heads,
           kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t value_dim,
      read("linear_value_head_dim", 2 * key_dim, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         JsonInt(json, "linear_conv_kernel_dim", 4, 2, 64));
  INLAY_ASSIGN_OR_RETURN(const bool doubles,
                         JsonFlag(json, "linear_allow_neg_eigval", true));
  if (heads % key_heads != 0 || key_dim < 1 || heads * value_dim > kMaxHidden ||
      key_heads * key_dim > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: linear attention with linear_num_value_heads %d of %d "
        "and linear_num_key_heads %d of %d; value heads must be a multiple of "
        "key heads, either at most %d wide together",
        heads, value_dim, key_heads, key_dim, kMaxHidden));
  }
  DeltaSpec delta;
  delta.num_heads = static_cast<int>(heads);
  delta.num_key_heads = static_cast<int>(key_heads);
  delta.key_dim = static_cast<int>(key_dim);
  delta.value_dim = static_cast<int>(value_dim);
  delta.num_taps = static_cast<int>(taps);
  delta.norm.epsilon = kDeltaNormEpsilon;
  // Twice as much of each token goes in as elsewhere. With keys longer by the
  // root of 2 the state and what is read of it are smaller by that, which the
  // norm after it undoes.
  if (doubles) {
    delta.key_length = std::numbers::sqrt2_v<float>;
    delta.norm.epsilon /= 2.0f;
  }
  return delta;
}

absl::StatusOr<OlmoHybridConfig> ReadOlmoHybrid(const Json& json) {
  OlmoHybridConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder,
                         ReadDecoderConfig(json, OlmoHybridDefaults()));
  INLAY_ASSIGN_OR_RETURN(config.attends,
                         ReadOlmoAttention(json, config.decoder.num_layers));
  INLAY_ASSIGN_OR_RETURN(config.delta, ReadOlmoDelta(json, config.decoder));
  INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "attention_bias", false));
  config.rotates = !HasNoRope(json);
  if (config.rotates) {
    INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.decoder, {}));
  }
  return config;
}

// How many channels each of the three convolutions has: those of q, k and v, or
// as transformers writes them, thirds of all.
std::vector<int64_t> ConvWidths(const WeightLoader& weights,
                                const DeltaSpec& delta) {
  std::vector<int64_t> widths;
  int64_t all = 0;
  for (const std::string& conv : delta.convs) {
    const WeightInfo* info = weights.InfoOf(conv + ".weight");
    if (info == nullptr || info->shape.empty() || info->shape[0] < 1 ||
        info->shape[0] > delta.conv_width()) {
      return {};
    }
    widths.push_back(info->shape[0]);
    all += info->shape[0];
  }
  return all == delta.conv_width() ? widths : std::vector<int64_t>();
}

LayerSpec OlmoDeltaLayer(const OlmoHybridConfig& config,
                         const std::string& prefix,
                         const WeightLoader& weights) {
  const DecoderConfig& decoder = config.decoder;
  const int64_t hidden = decoder.hidden_size;
  const std::string name = prefix + "linear_attn.";
  DeltaSpec delta = config.delta;
  delta.qkvz = {{name + "q_proj", delta.key_width(), hidden},
                {name + "k_proj", delta.key_width(), hidden},
                {name + "v_proj", delta.value_width(), hidden},
                {name + "g_proj", delta.value_width(), hidden}};
  delta.ba = {{name + "b_proj", delta.num_heads, hidden},
              {name + "a_proj", delta.num_heads, hidden}};
  delta.convs = {name + "q_conv1d", name + "k_conv1d", name + "v_conv1d"};
  delta.conv_widths = ConvWidths(weights, delta);
  delta.a_log = name + "A_log";
  delta.dt_bias = name + "dt_bias";
  delta.norm.kind = NormKind::kRms;
  delta.norm.name = name + "o_norm";
  delta.output = {name + "o_proj", hidden, delta.value_width()};
  LayerSpec layer =
      LlamaStyleLayer(decoder, prefix, NormKind::kRms, std::move(delta),
                      LlamaStyleMlp(decoder, prefix, false));
  layer.blocks[0].pre_norm.name = prefix + "attention_layer_norm";
  layer.blocks[1].pre_norm.name = prefix + "feedforward_layer_norm";
  return layer;
}

LayerSpec OlmoAttentionLayer(const OlmoHybridConfig& config,
                             const std::string& prefix,
                             const WeightLoader& weights) {
  const DecoderConfig& decoder = config.decoder;
  AttentionSpec attention =
      LlamaStyleAttention(decoder, prefix, config.bias, config.bias);
  AddHeadNorms(decoder, prefix, NormKind::kRms, &attention);
  attention.joint_norms = true;
  attention.rope = config.rotates ? 0 : -1;
  LayerSpec layer =
      PostNormLayer(decoder, prefix, NormKind::kRms, std::move(attention),
                    LlamaStyleMlp(decoder, prefix, false));
  // What transformers writes.
  const std::string other = prefix + "feedforward_layer_norm";
  if (weights.Has(other + ".weight")) layer.blocks[0].post_norm.name = other;
  return layer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeOlmoHybrid(const Json& json,
                                                      ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const OlmoHybridConfig config, ReadOlmoHybrid(json));
  DecoderSpec spec = LlamaStyleDecoder(config.decoder, NormKind::kRms);
  if (config.rotates) {
    spec.max_positions =
        UsablePositions(config.decoder.max_positions, config.rope);
    spec.ropes.push_back(config.rope);
  }
  build.weights.set_optional_prefix(spec.optional_prefix);
  for (int i = 0; i < config.decoder.num_layers; ++i) {
    const auto make = config.attends[static_cast<size_t>(i)]
                          ? OlmoAttentionLayer
                          : OlmoDeltaLayer;
    spec.layers.push_back(make(config, LayerPrefix(i), build.weights));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
