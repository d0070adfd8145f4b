#include "core/formats/gguf_minimax.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/gguf_windows.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kM3Leading[] = "leading_dense_block_count";
constexpr char kM3Shared[] = "expert_shared_count";
constexpr char kM3Scale[] = "expert_weights_scale";
constexpr char kM3Norm[] = "expert_weights_norm";
constexpr char kM3Gating[] = "expert_gating_func";
constexpr char kM3Width[] = "expert_feed_forward_length";
constexpr int64_t kM3Sigmoid = 2;
// The activation's, of every file.
constexpr double kM3Slope = 1.702;
constexpr double kM3Limit = 7.0;

constexpr char kLightning[] = "attention.recurrent_layers";
constexpr char kFullEvery[] = "full_attention_interval";
constexpr char kSumFactor[] = "residual_scale";
// Every so many layers one is full where files do not say.
constexpr int64_t kFullInterval = 8;
constexpr const char* kSums[] = {"full_attn", "linear_attn", "mlp"};

// Of each layer whether it has lightning attention.
absl::StatusOr<std::vector<bool>> ReadLightning(const GgufArchKeys& keys,
                                                int64_t layers) {
  if (keys.Find(kLightning) != nullptr) {
    return ReadGgufLayerFlags(keys, kLightning, layers);
  }
  INLAY_ASSIGN_OR_RETURN(const auto every,
                         keys.Int(kFullEvery, 1, kMaxGgufLayers));
  std::vector<bool> are;
  for (int64_t i = 0; i < layers; ++i) {
    are.push_back((i + 1) % every.value_or(kFullInterval) != 0);
  }
  return are;
}

struct M3IndexKey {
  const char* gguf;
  const char* flat;    // transformers'
  const char* nested;  // published, under sparse_attention_config
  int64_t fallback;
};
constexpr M3IndexKey kM3Index[] = {
    {"attention.indexer.head_count", "index_n_heads", "sparse_num_index_heads",
     4},
    {"attention.indexer.key_length", "index_head_dim", "sparse_index_dim", 128},
    {"attention.indexer.top_k", "index_topk_blocks", "sparse_topk_blocks", 16},
    {"attention.indexer.block_size", "index_block_size", "sparse_block_size",
     128},
    {"attention.indexer.local_blocks", "index_local_blocks",
     "sparse_local_block", 1}};

constexpr char kM3Sparse[] = "sparse_attention_config";

// The object that has what config.json says of selection under published names;
// null: config.json has transformers' own.
const Json* M3Selection(const Json& config) {
  const Json* sparse = JsonFind(config, kM3Sparse);
  return sparse != nullptr && sparse->is_object() ? sparse : nullptr;
}

// Which layers are of a kind, by names or by flags; `fallback` where
// config.json does not say.
std::vector<bool> M3Layers(const Json& config, const Json& flags_of,
                           const char* names, std::string_view yes,
                           const char* flags, bool fallback, size_t layers) {
  std::vector<bool> are(layers, fallback);
  const Json* list = JsonFind(config, names);
  const bool is_named = list != nullptr && list->is_array();
  if (!is_named) list = JsonFind(flags_of, flags);
  if (list == nullptr || !list->is_array()) return are;
  for (size_t i = 0; i < layers && i < list->size(); ++i) {
    const Json& own = (*list)[i];
    are[i] = is_named ? own == yes : own != 0 && own != false;
  }
  return are;
}

absl::Status SetM3Layers(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  const Json& config = keys.config();
  const Json* selection = M3Selection(config);
  const auto count = static_cast<size_t>(layers);
  const std::vector<bool> selects = M3Layers(
      config, selection != nullptr ? *selection : config, "layer_types",
      "minimax_m3_sparse", "sparse_attention_freq", false, count);
  const std::vector<bool> sparse =
      M3Layers(config, config, "mlp_layer_types", "sparse", "moe_layer_freq",
               true, count);
  size_t leading = 0;
  while (leading < count && !sparse[leading]) ++leading;
  for (size_t i = 0; i < count; ++i) {
    const char* flags = config.contains("mlp_layer_types") ? "mlp_layer_types"
                                                           : "moe_layer_freq";
    if (sparse[i] != (i >= leading)) {
      return keys.NotSaid(flags, config.value(flags, Json()));
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (selects[i] == sparse[i]) continue;
    const char* types = config.contains("layer_types") ? "layer_types"
                        : selection != nullptr         ? kM3Sparse
                                               : "sparse_attention_freq";
    return keys.NotSaid(types, config.value(types, Json()));
  }
  return keys.SetU32(kM3Leading, static_cast<int64_t>(leading));
}

}  // namespace

absl::Status ReadGgufMiniMax01(const GgufArchKeys& keys, const GgufSizes& sizes,
                               Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto factor, keys.Number(kSumFactor));
  if (factor.value_or(0.0) <= 0.0) {
    return absl::InvalidArgumentError(
        FormattedString("%s is %g, allowed: a number above 0",
                        keys.Name(kSumFactor), factor.value_or(0.0)));
  }
  for (const std::string sum : kSums) {
    (*config)[sum + "_alpha_factor"] = *factor;
    (*config)[sum + "_beta_factor"] = 1.0;
  }
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> lightning,
                         ReadLightning(keys, sizes.layers));
  Json types = Json::array();
  for (const bool is : lightning) {
    types.push_back(is ? "linear_attention" : "full_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return absl::OkStatus();
}

absl::Status SetGgufMiniMax01(GgufKeyWriter& keys) {
  const Json& config = keys.config();
  INLAY_RETURN_IF_ERROR(keys.Expect("sliding_window", Json()));
  double factor = 0.0;
  for (const std::string sum : kSums) {
    const std::string alpha = sum + "_alpha_factor";
    INLAY_ASSIGN_OR_RETURN(const double own,
                           JsonNumber(config, alpha, 1.0, 1e-3, 1e3));
    if (factor != 0.0 && own != factor) {
      return keys.NotSaid(alpha.c_str(), own);
    }
    factor = own;
    INLAY_RETURN_IF_ERROR(keys.Expect((sum + "_beta_factor").c_str(), 1.0));
  }
  INLAY_RETURN_IF_ERROR(keys.SetF32(kSumFactor, factor));
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  const Json* types = JsonFind(config, "layer_types");
  std::vector<bool> lightning;
  for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
    const bool is_listed =
        types != nullptr && types->is_array() && i < types->size();
    lightning.push_back(is_listed ? (*types)[i] == "linear_attention"
                                  : i % 2 == 1);
  }
  return keys.SetBools(kLightning, lightning);
}

absl::Status ReadGgufMiniMaxM3(const GgufArchKeys& keys, const GgufSizes& sizes,
                               Json* config) {
  const auto required = [&](const char* key, int64_t min) {
    return keys.Required(key, keys.Int(key, min, kMaxGgufSize));
  };
  INLAY_ASSIGN_OR_RETURN(const int64_t gating, required(kM3Gating, 0));
  INLAY_ASSIGN_OR_RETURN(const auto normalised, keys.Bool(kM3Norm));
  if (gating != kM3Sigmoid || !normalised.value_or(false)) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d and %s %s, allowed: %d (sigmoid), true", keys.Name(kM3Gating),
        gating, keys.Name(kM3Norm),
        normalised.value_or(false) ? "true" : "false", kM3Sigmoid));
  }
  INLAY_ASSIGN_OR_RETURN(const int64_t width, required(kM3Width, 1));
  INLAY_ASSIGN_OR_RETURN(const int64_t shared, required(kM3Shared, 1));
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number(kM3Scale));
  INLAY_ASSIGN_OR_RETURN(const auto leading,
                         keys.Int(kM3Leading, 0, sizes.layers));
  for (const M3IndexKey& key : kM3Index) {
    INLAY_ASSIGN_OR_RETURN((*config)[key.flat], required(key.gguf, 0));
  }
  // Files without a scale say 0.
  (*config)["routed_scaling_factor"] =
      scale.value_or(0.0) == 0.0 ? 1.0 : *scale;
  (*config)["dense_intermediate_size"] = sizes.inner;
  if (shared > kMaxGgufSize / width) {
    return absl::InvalidArgumentError(
        FormattedString("%s is %d, allowed: experts of %d up to a width of %d",
                        keys.Name(kM3Shared), shared, width, kMaxGgufSize));
  }
  (*config)["shared_intermediate_size"] = shared * width;
  (*config)["swiglu_alpha"] = kM3Slope;
  (*config)["swiglu_limit"] = kM3Limit;
  Json types = Json::array(), mlps = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const bool is_sparse = i >= leading.value_or(0);
    types.push_back(is_sparse ? "minimax_m3_sparse" : "full_attention");
    mlps.push_back(is_sparse ? "sparse" : "dense");
  }
  (*config)["layer_types"] = std::move(types);
  (*config)["mlp_layer_types"] = std::move(mlps);
  return absl::OkStatus();
}

absl::Status SetGgufMiniMaxM3(GgufKeyWriter& keys) {
  const Json& config = keys.config();
  INLAY_RETURN_IF_ERROR(
      keys.CheckActivation("hidden_act", {"swigluoai", "silu"}));
  INLAY_RETURN_IF_ERROR(keys.Expect("swiglu_alpha", kM3Slope));
  INLAY_RETURN_IF_ERROR(keys.Expect("swiglu_limit", kM3Limit));
  INLAY_RETURN_IF_ERROR(keys.Expect("scoring_func", "sigmoid"));
  INLAY_RETURN_IF_ERROR(SetM3Layers(keys));
  INLAY_ASSIGN_OR_RETURN(const int64_t width,
                         keys.Size("intermediate_size", 3072));
  INLAY_ASSIGN_OR_RETURN(const int64_t shared,
                         keys.Size("shared_intermediate_size", 3072));
  if (shared % width != 0) {
    return keys.NotSaid("shared_intermediate_size", shared);
  }
  INLAY_RETURN_IF_ERROR(keys.SetU32(kM3Width, width));
  INLAY_RETURN_IF_ERROR(keys.SetU32(kM3Shared, shared / width));
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("num_local_experts", "expert_count", 128).status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("num_experts_per_tok", "expert_used_count", 4).status());
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("routed_scaling_factor", kM3Scale, 2.0));
  INLAY_RETURN_IF_ERROR(keys.SetBool(kM3Norm, true));
  INLAY_RETURN_IF_ERROR(keys.SetU32(kM3Gating, kM3Sigmoid));
  const Json* selection = M3Selection(config);
  for (const M3IndexKey& key : kM3Index) {
    // A published one wins over transformers'.
    const bool is_nested =
        selection != nullptr && JsonFind(*selection, key.nested) != nullptr;
    INLAY_ASSIGN_OR_RETURN(const int64_t value,
                           JsonInt(is_nested ? *selection : config,
                                   is_nested ? key.nested : key.flat,
                                   key.fallback, 0, kMaxGgufSize));
    INLAY_RETURN_IF_ERROR(keys.SetU32(key.gguf, value));
  }
  return absl::OkStatus();
}

}  // namespace inlay
