// Zamba 2 (Zyphra, arXiv:2411.15242): Mamba 2 mixers, and before some of them
// one of a few transformers that layers share in turn, over the residual stream
// and the embeddings side by side; what it gives is read by the mixer alone.
// Each use has a product of low rank of its own beside the MLP's first matrix.
// Source of names and defaults: transformers' Zamba2Config.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/deepseek_style.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/mamba_style.h"
#include "core/model/decoder.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

struct ZambaConfig {
  DecoderConfig decoder;     // heads are of twice the width
  std::vector<bool> shares;  // whether a layer has a transformer before it
  int num_blocks = 1;        // different ones
  int64_t rank = 0;
  bool bias = false;
  bool rotates = false;
  RopeSpec rope;
  MambaSpec mamba;  // of a mixer without a name
};

absl::StatusOr<DecoderConfig> ReadZambaDecoder(const Json& json) {
  Json own = json;
  // They follow from the width, whatever files say of them.
  own.erase("head_dim");
  own.erase("attention_head_dim");
  DecoderDefaults defaults;
  defaults.hidden_size = 2560;
  defaults.num_layers = 54;
  defaults.max_positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.activation = "gelu";
  defaults.tie_embeddings = true;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t hidden,
      JsonInt(json, "hidden_size", defaults.hidden_size, 1, kMaxHidden / 2));
  defaults.intermediate_size = 4 * hidden;
  INLAY_ASSIGN_OR_RETURN(
      const int64_t heads,
      JsonInt(json, "num_attention_heads", defaults.num_heads, 1, kMaxHeads));
  if (2 * hidden % heads != 0) {
    return absl::InvalidArgumentError(FormattedString(
        "config.json: twice hidden_size, %d, with num_attention_heads %d; it "
        "must be a multiple",
        2 * hidden, heads));
  }
  defaults.head_dim = 2 * hidden / heads;
  return ReadDecoderConfig(own, defaults);
}

// layers_block_type, or layer_types; as in Zamba2-2.7B where there is neither.
absl::StatusOr<std::vector<bool>> ReadZambaLayers(const Json& json,
                                                  int num_layers) {
  const char* key = "layers_block_type";
  if (JsonFind(json, key) == nullptr) key = "layer_types";
  const Json* types = JsonFind(json, key);
  std::vector<bool> shares;
  if (types == nullptr) {
    for (int i = 0; i < num_layers; ++i) {
      shares.push_back((i > 0 && i <= 42 && i % 6 == 0) || i == 47 || i == 51);
    }
    if (num_layers == 54) return shares;
    return absl::UnimplementedError(FormattedString(
        "config.json: layers_block_type is missing with num_hidden_layers %d; "
        "supported without it is 54",
        num_layers));
  }
  bool is_known =
      types->is_array() && types->size() == static_cast<size_t>(num_layers);
  for (size_t i = 0; is_known && i < types->size(); ++i) {
    const Json& type = (*types)[i];
    is_known =
        type == "mamba" || type == "linear_attention" || type == "hybrid";
    shares.push_back(type == "hybrid");
  }
  if (is_known) return shares;
  return absl::InvalidArgumentError(FormattedString(
      "config.json: %s is %s; it must be an array of %d times \"mamba\" (or "
      "\"linear_attention\") or \"hybrid\"",
      key, ShownJson(*types), num_layers));
}

absl::StatusOr<MambaSpec> ReadZambaMamba(const Json& json, int64_t hidden) {
  Json own = json;
  // Not read: the width of heads follows, and so do limits.
  own.erase("mamba_headdim");
  own.erase("time_step_limit");
  constexpr double kMostTimes = 64;
  INLAY_ASSIGN_OR_RETURN(const double expand,
                         JsonNumber(json, "mamba_expand", 2, 0, kMostTimes));
  const auto inner = static_cast<int64_t>(expand * static_cast<double>(hidden));
  // Whatever this says there is one, in transformers.
  INLAY_RETURN_IF_ERROR(ExpectFlag(json, "use_conv_bias", true));
  MambaKeys keys;
  keys.heads = "n_mamba_heads";
  keys.head_dim = "mamba_headdim";
  keys.groups = "mamba_ngroups";
  keys.conv_bias = "use_conv_bias";
  keys.bias = "add_bias_linear";
  keys.default_heads = 8;
  keys.default_state_size = 64;
  INLAY_ASSIGN_OR_RETURN(MambaSpec mamba,
                         ReadMamba(own, keys, hidden, inner, ""));
  INLAY_ASSIGN_OR_RETURN(const double least,
                         JsonNumber(json, "time_step_min", 0.001, 0.0, 1e6));
  mamba.least_step = static_cast<float>(least);
  mamba.norm_groups = mamba.num_groups;
  return mamba;
}

absl::StatusOr<ZambaConfig> ReadZambaConfig(const Json& json) {
  ZambaConfig config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadZambaDecoder(json));
  INLAY_ASSIGN_OR_RETURN(config.shares,
                         ReadZambaLayers(json, config.decoder.num_layers));
  INLAY_ASSIGN_OR_RETURN(const int64_t blocks,
                         JsonInt(json, "num_mem_blocks", 1, 1, kMaxLayers));
  config.num_blocks = static_cast<int>(blocks);
  INLAY_ASSIGN_OR_RETURN(config.rank,
                         JsonInt(json, "adapter_rank", 128, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(config.bias, JsonBool(json, "add_bias_linear", false));
  // Of 1.2B; and what stretches rope in some readers and not in others.
  for (const char* key : {"use_shared_attention_adapter", "use_long_context"}) {
    INLAY_RETURN_IF_ERROR(ExpectFlag(json, key, false));
  }
  INLAY_ASSIGN_OR_RETURN(config.rotates, JsonBool(json, "use_mem_rope", false));
  if (config.rotates) {
    INLAY_ASSIGN_OR_RETURN(config.rope, ReadRope(json, config.decoder, {}));
  }
  INLAY_ASSIGN_OR_RETURN(config.mamba,
                         ReadZambaMamba(json, config.decoder.hidden_size));
  return config;
}

MambaSpec ZambaMixer(const ZambaConfig& config, const std::string& name) {
  // Whatever rms_norm_eps says.
  constexpr float kMixerEpsilon = 1e-5f;
  MambaSpec mamba = config.mamba;
  mamba.prefix = name;
  mamba.input.name = name + ".in_proj";
  mamba.output.name = name + ".out_proj";
  mamba.norm = {NormKind::kRms, name + ".norm", kMixerEpsilon};
  return mamba;
}

// The transformer's `use`, counted over the layers with one; its tensors are
// those of the layer `owner`. `layer`: the prefix of the layer that uses it.
SharedTransformerSpec ZambaTransformer(const ZambaConfig& config, int use,
                                       const std::string& owner,
                                       const std::string& layer) {
  const DecoderConfig& decoder = config.decoder;
  const int64_t hidden = decoder.hidden_size;
  const int64_t width = decoder.intermediate_size;
  const std::string name = owner + "shared_transformer.";
  SharedTransformerSpec spec;
  spec.embedding = "model.embed_tokens.weight";
  spec.vocab_size = decoder.vocab_size;
  spec.norm = {NormKind::kRms, name + "input_layernorm", decoder.norm_epsilon};
  spec.attention = LlamaStyleAttention(decoder, name, false, false);
  for (LinearSpec& linear : spec.attention.qkv) linear.k = 2 * hidden;
  spec.attention.scale = std::sqrt(2.0f / static_cast<float>(decoder.head_dim));
  if (!config.rotates) spec.attention.rope = -1;
  spec.mlp_norm = {NormKind::kRms, name + "pre_ff_layernorm",
                   decoder.norm_epsilon};
  spec.activation = decoder.activation;
  const std::string mlp = name + "feed_forward.";
  const std::string adapter =
      FormattedString("%sgate_up_proj_adapter_list.%d.", mlp, use);
  spec.gate_up = {mlp + "gate_up_proj", 2 * width, hidden, config.bias};
  spec.low = {adapter + "0", config.rank, hidden};
  spec.high = {adapter + "1", 2 * width, config.rank};
  spec.down = {mlp + "down_proj", hidden, width, config.bias};
  spec.output = {layer + "linear", hidden, hidden};
  return spec;
}

// Files may hold one for each layer, and do where embeddings are not tied.
bool OwnsTransformer(const std::string& layer, const WeightLoader& weights) {
  return weights.Has(layer + "shared_transformer.self_attn.q_proj.weight");
}

DecoderSpec ZambaSpec(const ZambaConfig& config, const WeightLoader& weights) {
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, NormKind::kRms);
  spec.final_norm.name = "model.final_layernorm";
  spec.shares_layers = true;
  if (config.rotates) {
    spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
    spec.ropes.push_back(config.rope);
  }
  std::vector<std::string> owners;  // prefixes of the layers that store one
  int uses = 0;
  for (int i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = LayerPrefix(i);
    LayerSpec& layer = spec.layers.emplace_back();
    std::string own = prefix;
    if (config.shares[static_cast<size_t>(i)]) {
      if (uses < config.num_blocks) owners.push_back(prefix);
      std::string& owner =
          owners[static_cast<size_t>(uses % config.num_blocks)];
      if (OwnsTransformer(prefix, weights)) owner = prefix;
      layer.blocks.push_back(
          {.aside = true,
           .part = ZambaTransformer(config, uses, owner, prefix)});
      ++uses;
      own += "mamba_decoder.";
    }
    layer.blocks.push_back(
        {.pre_norm = NormSpec{NormKind::kRms, own + "input_layernorm",
                              decoder.norm_epsilon},
         .part = ZambaMixer(config, own + "mamba")});
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeZamba2(const Json& json,
                                                  ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const ZambaConfig config, ReadZambaConfig(json));
  return BuildDecoder(ZambaSpec(config, build.weights), build);
}

}  // namespace inlay
