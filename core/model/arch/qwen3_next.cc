// Qwen 3 Next: gated DeltaNet in most layers, gated attention in every fourth,
// mixtures of experts with a shared one. Norms are zero-centred but the gated
// one. Source of names and defaults: transformers' Qwen3NextConfig.
#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr NormKind kQwen3NextNorm = NormKind::kRmsZeroCentred;

// Which layers have attention: layer_types, or every so many.
absl::StatusOr<std::vector<bool>> Qwen3NextAttentionLayers(const Json& json,
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
    return absl::InvalidArgumentError(absl::StrFormat(
        "config.json: layer_types is %s; it must be an array of %d times "
        "\"linear_attention\" or \"full_attention\"",
        DumpJson(*types), num_layers));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = (*types)[i] == "full_attention";
  }
  return layers;
}

// The sizes of linear attention, no names.
absl::StatusOr<DeltaSpec> ReadQwen3NextDelta(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t key_heads,
      JsonInt(json, "linear_num_key_heads", 16, 1, kMaxHeads));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(json, "linear_num_value_heads", 32, 1, kMaxHeads));
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
    return absl::InvalidArgumentError(absl::StrFormat(
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

// in_proj_qkvz and in_proj_ba give for each key head its q, k, then the v and
// then the z of its value heads; and their b, then their a.
void OrderQwen3NextHeads(DeltaSpec& delta) {
  const int heads = delta.num_heads / delta.num_key_heads;  // a key head
  const int values = heads * delta.value_dim;
  const int stride = 2 * delta.key_dim + 2 * values;
  const auto add = [&](std::vector<ColumnRun>& order, int of, int first,
                       int count) {
    for (int head = 0; head < delta.num_key_heads; ++head) {
      order.push_back({head * of + first, count});
    }
  };
  add(delta.qkvz_order, stride, 0, delta.key_dim);
  add(delta.qkvz_order, stride, delta.key_dim, delta.key_dim);
  add(delta.qkvz_order, stride, 2 * delta.key_dim, values);
  add(delta.qkvz_order, stride, 2 * delta.key_dim + values, values);
  add(delta.ba_order, 2 * heads, 0, heads);
  add(delta.ba_order, 2 * heads, heads, heads);
}

DeltaSpec Qwen3NextDelta(DeltaSpec delta, const DecoderConfig& config,
                         const std::string& prefix) {
  const std::string name = prefix + "linear_attn.";
  const int64_t hidden = config.hidden_size;
  delta.qkvz = {{name + "in_proj_qkvz",
                 2 * delta.key_width() + 2 * delta.value_width(), hidden}};
  delta.ba = {{name + "in_proj_ba", int64_t{2} * delta.num_heads, hidden}};
  delta.convs = {name + "conv1d"};
  delta.a_log = name + "A_log";
  delta.dt_bias = name + "dt_bias";
  delta.norm = {NormKind::kRms, name + "norm", config.norm_epsilon};
  delta.output = {name + "out_proj", hidden, delta.value_width()};
  return delta;
}

AttentionSpec Qwen3NextAttention(const DecoderConfig& config,
                                 const std::string& prefix, bool bias) {
  AttentionSpec attention = LlamaStyleAttention(config, prefix, bias, bias);
  attention.gated = true;
  attention.qkv[0].n *= 2;
  attention.q_norm = {kQwen3NextNorm, prefix + "self_attn.q_norm",
                      config.norm_epsilon};
  attention.k_norm = {kQwen3NextNorm, prefix + "self_attn.k_norm",
                      config.norm_epsilon};
  return attention;
}

struct Qwen3NextExperts {
  MoeConfig moe;
  int64_t shared_width = 0;
  std::vector<bool> sparse;  // by layer
};

absl::StatusOr<Qwen3NextExperts> ReadQwen3NextExperts(const Json& json,
                                                      int num_layers) {
  Qwen3NextExperts experts;
  INLAY_ASSIGN_OR_RETURN(
      experts.moe,
      ReadMoeConfig(json, "moe_intermediate_size", {512, 10, 512, true}));
  INLAY_ASSIGN_OR_RETURN(
      experts.shared_width,
      JsonInt(json, "shared_expert_intermediate_size", 512, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(experts.sparse, ReadSparseLayers(json, num_layers));
  return experts;
}

PartSpec Qwen3NextMlp(const DecoderConfig& config,
                      const Qwen3NextExperts& experts, int layer,
                      const std::string& prefix) {
  if (!experts.sparse[static_cast<size_t>(layer)]) {
    return LlamaStyleMlp(config, prefix, false);
  }
  MoeSpec moe =
      LlamaStyleMoe(config, experts.moe, prefix + "mlp.", "gate", false);
  moe.shared =
      SharedExpert(config, prefix + "mlp.shared_expert.", experts.shared_width);
  moe.shared_gate =
      LinearSpec{prefix + "mlp.shared_expert_gate", 1, config.hidden_size};
  return moe;
}

absl::StatusOr<DecoderSpec> Qwen3NextSpec(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 5632;
  defaults.num_layers = 48;
  defaults.num_heads = 16;
  defaults.num_kv_heads = 2;
  defaults.head_dim = 256;
  defaults.max_positions = 32768;
  INLAY_ASSIGN_OR_RETURN(const DecoderConfig config,
                         ReadDecoderConfig(json, defaults));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> attends,
                         Qwen3NextAttentionLayers(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(const Qwen3NextExperts experts,
                         ReadQwen3NextExperts(json, config.num_layers));
  INLAY_ASSIGN_OR_RETURN(DeltaSpec delta, ReadQwen3NextDelta(json));
  OrderQwen3NextHeads(delta);
  INLAY_ASSIGN_OR_RETURN(const bool bias,
                         JsonBool(json, "attention_bias", false));
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope,
                         ReadRope(json, config, {.partial = 0.25}));
  DecoderSpec spec = LlamaStyleDecoder(config, kQwen3NextNorm);
  spec.max_positions = UsablePositions(config.max_positions, rope);
  spec.ropes.push_back(rope);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    const auto norm = [&](const char* name) {
      return NormSpec{kQwen3NextNorm, prefix + name, config.norm_epsilon};
    };
    PartSpec mixer = Qwen3NextDelta(delta, config, prefix);
    if (attends[static_cast<size_t>(i)]) {
      mixer = Qwen3NextAttention(config, prefix, bias);
    }
    LayerSpec& layer = spec.layers.emplace_back();
    layer.blocks.push_back(
        {.pre_norm = norm("input_layernorm"), .part = std::move(mixer)});
    layer.blocks.push_back({.pre_norm = norm("post_attention_layernorm"),
                            .part = Qwen3NextMlp(config, experts, i, prefix)});
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeQwen3Next(const Json& config,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const DecoderSpec spec, Qwen3NextSpec(config));
  return BuildDecoder(spec, build);
}

}  // namespace inlay
