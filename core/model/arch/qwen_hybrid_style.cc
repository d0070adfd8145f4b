#include "core/model/arch/qwen_hybrid_style.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/model/arch/llama_style.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr NormKind kQwenHybridNorm = NormKind::kRmsZeroCentred;

absl::StatusOr<std::vector<bool>> ReadAttentionLayers(const Json& json,
                                                      int num_layers) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t interval,
      JsonInt(json, "full_attention_interval", 4, 1, kMaxLayers));
  std::vector<bool> layers;
  for (int i = 0; i < num_layers; ++i) {
    layers.push_back((i + 1) % interval == 0);
  }
  const Json* types = JsonFind(json, "layer_types");
  if (types == nullptr) return layers;
  const auto is_known = [](const Json& type) {
    return type == "linear_attention" || type == "full_attention";
  };
  if (!types->is_array() || types->size() != layers.size() ||
      !std::all_of(types->begin(), types->end(), is_known)) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: layer_types is %s; it must be an array of %d times "
        "\"linear_attention\" or \"full_attention\"",
        ShownJson(*types), num_layers));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = (*types)[i] == "full_attention";
  }
  return layers;
}

AttentionSpec GatedAttention(const DecoderConfig& config,
                             const std::string& prefix, bool bias) {
  AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
  attention.gated = true;
  attention.qkv[0].n *= 2;
  AddHeadNorms(config, prefix, kQwenHybridNorm, &attention);
  return attention;
}

}  // namespace

absl::StatusOr<DeltaSpec> ReadQwenDeltaSizes(const Json& json,
                                             int64_t key_heads, int64_t heads) {
  INLAY_ASSIGN_OR_RETURN(key_heads, JsonInt(json, "linear_num_key_heads",
                                            key_heads, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      heads, JsonInt(json, "linear_num_value_heads", heads, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t key_dim,
      JsonInt(json, "linear_key_head_dim", 128, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t value_dim,
      JsonInt(json, "linear_value_head_dim", 128, 1, kMaxHeadDim));
  INLAY_ASSIGN_OR_RETURN(const int64_t taps,
                         JsonInt(json, "linear_conv_kernel_dim", 4, 2, 64));
  if (heads % key_heads != 0 || heads * value_dim > kMaxHidden ||
      key_heads * key_dim > kMaxHidden) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: linear attention with %d value heads of %d and %d key "
        "heads of %d; value heads must be a multiple of key heads, either at "
        "most %d wide together",
        heads, value_dim, key_heads, key_dim, kMaxHidden));
  }
  DeltaSpec delta;
  delta.num_heads = static_cast<int>(heads);
  delta.num_key_heads = static_cast<int>(key_heads);
  delta.key_dim = static_cast<int>(key_dim);
  delta.value_dim = static_cast<int>(value_dim);
  delta.num_taps = static_cast<int>(taps);
  return delta;
}

void NameQwenDelta(const DecoderConfig& config, const std::string& name,
                   DeltaSpec* delta) {
  delta->convs = {name + "conv1d"};
  delta->a_log = name + "A_log";
  delta->dt_bias = name + "dt_bias";
  delta->norm = {NormKind::kRms, name + "norm", config.norm_epsilon};
  delta->output = {name + "out_proj", config.hidden_size, delta->value_width()};
}

void NameQwenDeltaInputs(const DecoderConfig& config, const std::string& name,
                         DeltaSpec* delta) {
  const int64_t hidden = config.hidden_size;
  delta->qkvz = {{name + "in_proj_qkv", delta->conv_width(), hidden},
                 {name + "in_proj_z", delta->value_width(), hidden}};
  delta->ba = {{name + "in_proj_b", delta->num_heads, hidden},
               {name + "in_proj_a", delta->num_heads, hidden}};
}

absl::StatusOr<DecoderSpec> QwenHybridSpec(const Json& json,
                                           const DecoderConfig& config,
                                           const QwenHybridParts& parts) {
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> attends,
                         ReadAttentionLayers(json, config.num_layers));
  if (std::find(attends.begin(), attends.end(), false) != attends.end()) {
    INLAY_RETURN_IF_ERROR(ExpectSilu(json, "hidden_act"));
  }
  INLAY_ASSIGN_OR_RETURN(const DeltaSpec sizes,
                         ReadQwenDeltaSizes(json, 16, 32));
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.partial = 0.25}));
  DecoderSpec spec = LlamaStyleDecoder(config, kQwenHybridNorm);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const auto norm = [&](const char* name) {
      return NormSpec{kQwenHybridNorm, prefix + name, config.norm_epsilon};
    };
    PartSpec mixer;
    if (attends[static_cast<size_t>(i)]) {
      mixer = GatedAttention(config, prefix, bias);
    } else {
      DeltaSpec delta = sizes;
      NameQwenDelta(config, prefix + "linear_attn.", &delta);
      parts.projections(prefix + "linear_attn.", &delta);
      mixer = std::move(delta);
    }
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(
        {.pre_norm = norm("input_layernorm"), .part = std::move(mixer)});
    layer.blocks.push_back({.pre_norm = norm("post_attention_layernorm"),
                            .part = parts.feed_forward(i, prefix)});
  }
  return spec;
}

absl::StatusOr<QwenExperts> ReadQwenExperts(const Json& json,
                                            const MoeDefaults& defaults) {
  QwenExperts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe, ReadMoeConfig(json, "moe_intermediate_size", defaults));
  INLAY_ASSIGN_OR_RETURN(
      experts.shared_width,
      JsonInt(json, "shared_expert_intermediate_size", 512, 1, kMaxHidden));
  return experts;
}

MoeSpec QwenExpertsPart(const DecoderConfig& config, const QwenExperts& experts,
                        const std::string& prefix) {
  MoeSpec moe =
      LlamaStyleMoe(config, experts.moe, prefix + "mlp.", "gate", false);
  moe.shared =
      SharedExpert(config, prefix + "mlp.shared_expert.", experts.shared_width);
  moe.shared_gate =
      LinearSpec{prefix + "mlp.shared_expert_gate", 1, config.hidden_size};
  return moe;
}

}  // namespace inlay
