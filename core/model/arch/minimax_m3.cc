// MiniMax-M3's language model: attention of which most layers see blocks of
// keys that an indexer selects, norms on heads of q and k, rope on a part of
// each head, dense layers and then experts chosen by corrected sigmoid scores
// beside a shared one, all with gpt-oss's gates. Source of names and defaults:
// transformers' MiniMaxM3VLTextConfig; files have other names in the multimodal
// class and in its text model saved alone.
#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/arch.h"
#include "core/model/arch/llama_style.h"
#include "core/model/arch/moe_style.h"
#include "core/model/decoder.h"
#include "kernels/indexer/block_indexer.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr NormKind kM3Norm = NormKind::kRmsZeroCentred;

struct M3Config {
  DecoderConfig decoder;
  MoeConfig moe;
  int64_t dense_width = 0;
  int64_t shared_width = 0;
  float limit = 0.0f;
  std::vector<bool> selecting;  // layers whose keys are selected
  std::vector<bool> sparse;     // layers with experts
  BlockIndexSpec index;         // numbers, no names
  RopeSpec rope;
};

// What published files say of selection in an object of its own, under the
// keys of transformers' configuration, and which layers select, as flags.
Json WithSparseAttention(Json json) {
  const Json* sparse = JsonFind(json, "sparse_attention_config");
  if (sparse == nullptr || !sparse->is_object()) return json;
  constexpr KeyAlias kKeys[] = {
      {"sparse_num_index_heads", "index_n_heads"},
      {"sparse_index_dim", "index_head_dim"},
      {"sparse_block_size", "index_block_size"},
      {"sparse_topk_blocks", "index_topk_blocks"},
      {"sparse_local_block", "index_local_blocks"},
      {"sparse_attention_freq", "sparse_attention_freq"}};
  const Json from = *sparse;
  for (const KeyAlias& key : kKeys) {
    const Json* value = JsonFind(from, key.own);
    if (value != nullptr) json[std::string(key.usual)] = *value;
  }
  return json;
}

// `names` as ReadLayerKinds has them, or numbers under `flags`: others than 0
// are `yes`. Without either: `fallback`.
absl::StatusOr<std::vector<bool>> ReadM3Layers(const Json& json, int num_layers,
                                               std::string_view names,
                                               std::string_view yes,
                                               std::string_view no,
                                               std::string_view flags,
                                               bool fallback) {
  INLAY_ASSIGN_OR_RETURN(std::vector<bool> layers,
                         ReadLayerKinds(json, names, num_layers, yes, no));
  if (!layers.empty()) return layers;
  const Json* list = JsonFind(json, flags);
  if (list == nullptr) {
    return std::vector<bool>(static_cast<size_t>(num_layers), fallback);
  }
  const auto is_flag = [](const Json& flag) {
    return flag.is_number_integer() || flag.is_boolean();
  };
  if (!list->is_array() || list->size() != static_cast<size_t>(num_layers) ||
      !std::all_of(list->begin(), list->end(), is_flag)) {
    return absl::InvalidArgumentError(
        FormattedString("config.json: %s is %s; it must be %d numbers", flags,
                        ShownJson(*list), num_layers));
  }
  for (const Json& flag : *list) {
    layers.push_back(flag.is_boolean() ? flag.get<bool>()
                                       : flag.get<int64_t>() != 0);
  }
  return layers;
}

absl::StatusOr<DecoderConfig> ReadM3Decoder(const Json& json) {
  DecoderDefaults defaults;
  defaults.vocab_size = 200064;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 3072;
  defaults.num_layers = 60;
  defaults.num_heads = 64;
  defaults.num_kv_heads = 4;
  defaults.head_dim = 128;
  defaults.max_positions = 524288;
  Json own = json;
  own["hidden_act"] = "silu";  // "swigluoai" in files; the network has its own
  INLAY_ASSIGN_OR_RETURN(DecoderConfig config,
                         ReadDecoderConfig(own, defaults));
  config.activation = Activation::kClampedSilu;
  return config;
}

// What queries and keys of the index rotate is the layer's.
absl::StatusOr<BlockIndexSpec> ReadBlockIndex(const Json& json,
                                              const DecoderConfig& config,
                                              int rotary_dim) {
  INLAY_ASSIGN_OR_RETURN(const int64_t heads,
                         JsonInt(json, "index_n_heads", 4, 1, kMaxIndexHeads));
  if (heads != config.num_kv_heads) {
    return absl::UnimplementedError(FormattedString(
        "config.json: index_n_heads is %d; supported here are as many as "
        "num_key_value_heads, %d",
        heads, config.num_kv_heads));
  }
  INLAY_ASSIGN_OR_RETURN(
      const int64_t head_dim,
      JsonInt(json, "index_head_dim", 128, 1, kMaxIndexHeadDim));
  if (head_dim < rotary_dim) {
    return absl::UnimplementedError(FormattedString(
        "config.json: index_head_dim is %d; supported here is at least what "
        "is rotated, %d",
        head_dim, rotary_dim));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t block, JsonInt(json, "index_block_size",
                                                      128, 1, kMaxIndexBlock));
  if (!std::has_single_bit(static_cast<uint64_t>(block))) {
    return absl::UnimplementedError(FormattedString(
        "config.json: index_block_size is %d; supported here are powers of two",
        block));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t most, JsonInt(json, "index_topk_blocks",
                                                     16, 1, kMaxPositions));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t neighbours,
      JsonInt(json, "index_local_blocks", 1, 0, kMaxPositions));
  if (neighbours == 0 || neighbours > most) {
    return absl::UnimplementedError(FormattedString(
        "config.json: index_local_blocks is %d; supported here are 1 to "
        "index_topk_blocks, %d",
        neighbours, most));
  }
  const int64_t selects =
      std::min(most, (config.max_positions + block - 1) / block);
  if (selects > kMaxIndexTopK) {
    return absl::UnimplementedError(FormattedString(
        "config.json: index_topk_blocks is %d; supported here are up to %d",
        most, kMaxIndexTopK));
  }
  BlockIndexSpec index;
  index.head_dim = static_cast<int>(head_dim);
  index.block = static_cast<int>(block);
  index.selects = static_cast<int>(selects);
  index.neighbours = static_cast<int>(std::min(neighbours, selects));
  return index;
}

// transformers rotates what partial_rotary_factor says, whole heads without;
// the published key is rotary_dim. Files where they differ are refused.
absl::StatusOr<RopeSpec> ReadM3Rope(const Json& json,
                                    const DecoderConfig& config) {
  RopeDefaults defaults;
  defaults.theta = 5e6;
  defaults.partial = 1.0;
  INLAY_ASSIGN_OR_RETURN(const RopeSpec rope, ReadRope(json, config, defaults));
  INLAY_ASSIGN_OR_RETURN(
      const int64_t rotary_dim,
      JsonInt(json, "rotary_dim", rope.rotary_dim, 1, kMaxHeadDim));
  if (rotary_dim == rope.rotary_dim) return rope;
  return absl::UnimplementedError(FormattedString(
      "config.json: rotary_dim is %d, but partial_rotary_factor makes it %d; "
      "supported here are equal ones",
      rotary_dim, rope.rotary_dim));
}

// The activation's slope and limit.
absl::StatusOr<float> ReadM3Limit(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(
      const double slope,
      JsonNumber(json, "swiglu_alpha", kClampedSiluSlope, -1e6, 1e6));
  if (static_cast<float>(slope) != kClampedSiluSlope) {
    return absl::UnimplementedError(
        FormattedString("config.json: swiglu_alpha is %g; supported here is %g",
                        slope, kClampedSiluSlope));
  }
  INLAY_ASSIGN_OR_RETURN(const double limit,
                         JsonNumber(json, "swiglu_limit", 7.0, 1e-6, 1e6));
  return static_cast<float>(limit);
}

absl::StatusOr<MoeConfig> ReadM3Experts(const Json& json) {
  INLAY_ASSIGN_OR_RETURN(MoeConfig moe, ReadMoeConfig(json, "intermediate_size",
                                                      {128, 4, 3072, true}));
  moe.routing.score = RoutingScore::kSigmoid;
  moe.routing.normalised = true;  // whatever norm_topk_prob says
  INLAY_ASSIGN_OR_RETURN(
      const double scale,
      JsonNumber(json, "routed_scaling_factor", 2.0, 0.0, 1e6));
  moe.routing.scale = static_cast<float>(scale);
  return moe;
}

absl::StatusOr<M3Config> ReadM3Config(const Json& published) {
  const Json json = WithSparseAttention(published);
  M3Config config;
  INLAY_ASSIGN_OR_RETURN(config.decoder, ReadM3Decoder(json));
  const int num_layers = config.decoder.num_layers;
  INLAY_ASSIGN_OR_RETURN(config.moe, ReadM3Experts(json));
  INLAY_ASSIGN_OR_RETURN(
      config.dense_width,
      JsonInt(json, "dense_intermediate_size", 12288, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(
      config.shared_width,
      JsonInt(json, "shared_intermediate_size", 3072, 1, kMaxHidden));
  INLAY_ASSIGN_OR_RETURN(config.limit, ReadM3Limit(json));
  INLAY_ASSIGN_OR_RETURN(
      config.selecting,
      ReadM3Layers(json, num_layers, "layer_types", "minimax_m3_sparse",
                   "full_attention", "sparse_attention_freq", false));
  INLAY_ASSIGN_OR_RETURN(
      config.sparse, ReadM3Layers(json, num_layers, "mlp_layer_types", "sparse",
                                  "dense", "moe_layer_freq", true));
  INLAY_ASSIGN_OR_RETURN(config.rope, ReadM3Rope(json, config.decoder));
  if (std::find(config.selecting.begin(), config.selecting.end(), true) !=
      config.selecting.end()) {
    INLAY_ASSIGN_OR_RETURN(
        config.index,
        ReadBlockIndex(json, config.decoder, config.rope.rotary_dim));
  }
  return config;
}

BlockIndexSpec LayerIndex(const M3Config& config, const std::string& prefix,
                          const WeightLoader& weights) {
  const std::string other = prefix + "self_attn.indexer.";
  const std::string name = weights.Has(other + "q_proj.weight")
                               ? other
                               : prefix + "self_attn.index_";
  const DecoderConfig& decoder = config.decoder;
  BlockIndexSpec index = config.index;
  index.query = {name + "q_proj",
                 int64_t{decoder.num_kv_heads} * index.head_dim,
                 decoder.hidden_size};
  index.key = {name + "k_proj", index.head_dim, decoder.hidden_size};
  index.query_norm = {kM3Norm, name + "q_norm", decoder.norm_epsilon};
  index.key_norm = {kM3Norm, name + "k_norm", decoder.norm_epsilon};
  return index;
}

// Gate and up apart, or one matrix where files have that.
MlpSpec M3Mlp(const M3Config& config, const std::string& prefix, int64_t width,
              const WeightLoader& weights) {
  MlpSpec mlp = SharedExpert(config.decoder, prefix, width);
  mlp.limit = config.limit;
  const std::string both = prefix + "gate_up_proj";
  if (weights.Has(both + ".weight")) {
    mlp.input = {{both, 2 * width, config.decoder.hidden_size}};
  }
  return mlp;
}

MoeSpec M3Moe(const M3Config& config, const std::string& layer,
              const WeightLoader& weights) {
  const bool renamed = weights.Has(layer + "mlp.gate.weight");
  const std::string prefix = layer + (renamed ? "mlp." : "block_sparse_moe.");
  const ExpertNames names =
      renamed ? ExpertNames() : ExpertNames{"w1", "w3", "w2"};
  MoeSpec moe =
      LlamaStyleMoe(config.decoder, config.moe, prefix, "gate", false, names);
  for (MlpSpec& expert : moe.experts) expert.limit = config.limit;
  moe.correction =
      prefix + (renamed ? "gate." : "") + "e_score_correction_bias";
  moe.shared =
      M3Mlp(config, prefix + "shared_experts.", config.shared_width, weights);
  return moe;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeMiniMaxM3(const Json& json,
                                                     ModelBuild& build) {
  INLAY_ASSIGN_OR_RETURN(const M3Config config, ReadM3Config(json));
  const DecoderConfig& decoder = config.decoder;
  DecoderSpec spec = LlamaStyleDecoder(decoder, kM3Norm);
  spec.max_positions = UsablePositions(decoder.max_positions, config.rope);
  spec.ropes.push_back(config.rope);
  for (int i = 0; i < decoder.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const std::string prefix = LayerPrefix(i);
    AttentionSpec attention =
        LlamaStyleAttention(decoder, prefix, false, false);
    AddHeadNorms(decoder, prefix, kM3Norm, &attention);
    if (config.selecting[layer]) {
      attention.block_index = LayerIndex(config, prefix, build.weights);
    }
    PartSpec mlp =
        M3Mlp(config, prefix + "mlp.", config.dense_width, build.weights);
    if (config.sparse[layer]) mlp = M3Moe(config, prefix, build.weights);
    spec.layers.push_back(LlamaStyleLayer(
        decoder, prefix, kM3Norm, std::move(attention), std::move(mlp)));
  }
  return BuildDecoder(spec, build);
}

}  // namespace inlay
