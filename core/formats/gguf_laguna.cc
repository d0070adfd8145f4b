#include "core/formats/gguf_laguna.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/gguf_gemma.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kLagunaHeads[] = "attention.head_count";
constexpr char kLagunaWindow[] = "attention.sliding_window";
constexpr char kLagunaPattern[] = "attention.sliding_window_pattern";
constexpr char kLagunaWindowBase[] = "rope.freq_base_swa";
constexpr char kLagunaWindowDim[] = "rope.dimension_count_swa";
constexpr char kLagunaGating[] = "expert_gating_func";
constexpr char kLagunaNorm[] = "expert_weights_norm";
constexpr char kLagunaScale[] = "expert_weights_scale";
constexpr char kLagunaLeading[] = "leading_dense_block_count";
constexpr int64_t kLagunaSigmoid = 2;
// Every so many layers, from the first on, one is full where nothing says else.
constexpr int64_t kLagunaEvery = 4;

// 0: all have windows.
bool LagunaSlides(int64_t layer, int64_t every) {
  return every == 0 || layer % every != 0;
}

absl::Status ReadLagunaWindows(const GgufArchKeys& keys, const GgufSizes& sizes,
                               Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto window,
                         keys.Int(kLagunaWindow, 0, kMaxGgufSize));
  if (window.value_or(0) == 0) return absl::OkStatus();
  (*config)["sliding_window"] = *window;
  const GgufValue* pattern = keys.Find(kLagunaPattern);
  if (pattern != nullptr && pattern->is_array) {
    return ReadGgufPattern(keys, sizes.layers, false, config);
  }
  INLAY_ASSIGN_OR_RETURN(const auto every,
                         keys.Int(kLagunaPattern, 0, kMaxGgufLayers));
  Json types = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    types.push_back(LagunaSlides(i, every.value_or(kLagunaEvery))
                        ? "sliding_attention"
                        : "full_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return absl::OkStatus();
}

// What windowed layers have: nothing but a base and a part of heads.
absl::Status ReadLagunaWindowRope(const GgufArchKeys& keys,
                                  const GgufSizes& sizes, Json* config) {
  Json full = config->value("rope_scaling", Json::object());
  if (!full.contains("rope_type")) full["rope_type"] = "default";
  full["rope_theta"] = (*config)["rope_theta"];
  full["partial_rotary_factor"] = config->value("partial_rotary_factor", 1.0);
  Json sliding = {{"rope_type", "default"},
                  {"rope_theta", full["rope_theta"]},
                  {"partial_rotary_factor", full["partial_rotary_factor"]}};
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber(kLagunaWindowBase, "rope_theta", &sliding));
  INLAY_ASSIGN_OR_RETURN(const auto dim,
                         keys.Int(kLagunaWindowDim, 2, sizes.head_dim));
  if (dim.has_value()) {
    // It is multiplied out and cut off again: stay above the integer.
    sliding["partial_rotary_factor"] =
        *dim == sizes.head_dim ? 1.0
                               : (static_cast<double>(*dim) + 0.5) /
                                     static_cast<double>(sizes.head_dim);
  }
  for (const char* key :
       {"rope_theta", "rope_scaling", "partial_rotary_factor"}) {
    config->erase(key);
  }
  (*config)["rope_parameters"] = {{"full_attention", std::move(full)},
                                  {"sliding_attention", std::move(sliding)}};
  return absl::OkStatus();
}

// Of each layer whether it has a window; all false where there are none.
std::vector<bool> LagunaWindows(const Json& config, int64_t layers) {
  std::vector<bool> slides(static_cast<size_t>(layers), false);
  const Json* types = JsonFind(config, "layer_types");
  if (types == nullptr || !types->is_array()) return slides;
  for (size_t i = 0; i < std::min(slides.size(), types->size()); ++i) {
    slides[i] = (*types)[i] == "sliding_attention";
  }
  return slides;
}

absl::Status SetLagunaWindows(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  const std::vector<bool> slides = LagunaWindows(keys.config(), layers);
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) {
    return absl::OkStatus();
  }
  if (keys.IsNull("sliding_window")) {
    return keys.NotSaid("sliding_window", Json());
  }
  const auto fits = [&](int64_t every) {
    for (size_t i = 0; i < slides.size(); ++i) {
      if (slides[i] != LagunaSlides(static_cast<int64_t>(i), every))
        return false;
    }
    return true;
  };
  int64_t every = kLagunaEvery;
  for (int64_t other = 0; !fits(every); ++other) {
    if (other > layers) {
      return keys.NotSaid("layer_types", keys.config()["layer_types"]);
    }
    every = other == 1 ? 2 : other;  // 1: none has a window
  }
  INLAY_RETURN_IF_ERROR(keys.SetU32(kLagunaPattern, every));
  return keys.CopySize("sliding_window", kLagunaWindow, 512).status();
}

absl::Status SetLagunaWindowRope(GgufKeyWriter& keys, int64_t head_dim) {
  const Json ropes = WithLagunaRopes(keys.config());
  const Json* sliding = JsonFind(ropes["rope_parameters"], "sliding_attention");
  if (sliding == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(*sliding, "rope_type", "default"));
  if (type != "default") {
    return keys.NotSaid("rope_parameters", ropes["rope_parameters"]);
  }
  INLAY_ASSIGN_OR_RETURN(
      const double partial,
      JsonNumber(*sliding, "partial_rotary_factor", 1.0, 0.0, 1.0));
  return keys.SetU32(
      kLagunaWindowDim,
      static_cast<int64_t>(static_cast<double>(head_dim) * partial));
}

}  // namespace

absl::Status ReadGgufLaguna(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(
      const std::vector<int64_t> heads,
      keys.LayerInts(kLagunaHeads, sizes.layers, 1, kMaxGgufSize));
  (*config)["num_attention_heads_per_layer"] = heads;
  // How wide the first layer's gates are says it of all.
  const GgufTensor* gate = files.FindTensor("blk.0.attn_gate.weight");
  const bool of_heads = gate == nullptr || gate->info.shape.size() != 2 ||
                        gate->info.shape[0] == heads.front();
  (*config)["gating"] = of_heads ? "per-head" : "per-element";
  (*config)["attention_bias"] =
      files.FindTensor("blk.0.attn_q.bias") != nullptr;
  INLAY_RETURN_IF_ERROR(ReadLagunaWindows(keys, sizes, config));
  return ReadLagunaWindowRope(keys, sizes, config);
}

absl::Status ReadGgufLagunaExperts(const GgufArchKeys& keys,
                                   const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto gating,
                         keys.Int(kLagunaGating, 0, INT32_MAX));
  INLAY_ASSIGN_OR_RETURN(const auto normalised, keys.Bool(kLagunaNorm));
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number(kLagunaScale));
  INLAY_ASSIGN_OR_RETURN(const auto leading,
                         keys.Int(kLagunaLeading, 0, sizes.layers));
  const int64_t score = gating.value_or(0);
  if ((score != 0 && score != kLagunaSigmoid) || !normalised.value_or(false)) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d and %s %s, allowed: %d (sigmoid), true",
        keys.Name(kLagunaGating), score, keys.Name(kLagunaNorm),
        normalised.value_or(false) ? "true" : "false", kLagunaSigmoid));
  }
  (*config)["moe_routed_scaling_factor"] =
      scale.value_or(0.0) == 0.0 ? 1.0 : *scale;
  Json types = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    types.push_back(i < leading.value_or(0) ? "dense" : "sparse");
  }
  (*config)["mlp_layer_types"] = std::move(types);
  return absl::OkStatus();
}

absl::Status SetGgufLagunaHeads(GgufKeyWriter& keys) {
  constexpr char kKey[] = "num_attention_heads_per_layer";
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(const int64_t heads, keys.Size("num_attention_heads"));
  std::vector<uint32_t> all(static_cast<size_t>(layers),
                            static_cast<uint32_t>(heads));
  const Json* list = JsonFind(keys.config(), kKey);
  const bool has_list = list != nullptr && list->is_array();
  for (size_t i = 0; has_list && i < std::min(all.size(), list->size()); ++i) {
    INLAY_ASSIGN_OR_RETURN(const int64_t own,
                           NeededGgufSize(Json{{kKey, (*list)[i]}}, kKey));
    all[i] = static_cast<uint32_t>(own);
  }
  return keys.SetU32s(kLagunaHeads, all);
}

absl::Status SetGgufLaguna(GgufKeyWriter& keys, int64_t head_dim) {
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  INLAY_RETURN_IF_ERROR(SetLagunaWindows(keys));
  return SetLagunaWindowRope(keys, head_dim);
}

absl::Status SetGgufLagunaExperts(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("moe_router_logit_softcapping", 0.0));
  int64_t leading = 1;
  const Json* types = JsonFind(keys.config(), "mlp_layer_types");
  if (types != nullptr && types->is_array()) {
    const auto is_sparse = [](const Json& type) { return type == "sparse"; };
    const auto first = std::find_if(types->begin(), types->end(), is_sparse);
    if (!std::all_of(first, types->end(), is_sparse)) {
      return keys.NotSaid("mlp_layer_types", *types);
    }
    leading = first - types->begin();
  }
  INLAY_RETURN_IF_ERROR(keys.SetU32(kLagunaLeading, leading));
  INLAY_RETURN_IF_ERROR(
      keys.CopyNumber("moe_routed_scaling_factor", kLagunaScale, 1.0));
  INLAY_RETURN_IF_ERROR(keys.SetBool(kLagunaNorm, true));
  return keys.SetU32(kLagunaGating, kLagunaSigmoid);
}

Json WithLagunaRopes(const Json& config) {
  Json ropes = config;
  for (const char* key : {"rope_theta", "rope_scaling", "rope_local_base_freq",
                          "partial_rotary_factor"}) {
    ropes.erase(key);
  }
  const Json* own = JsonFind(config, "rope_parameters");
  if (own == nullptr) {
    ropes["rope_parameters"] = {
        {"full_attention", {{"partial_rotary_factor", 0.5}}},
        {"sliding_attention", Json::object()}};
  }
  for (const auto& [type, base] : {std::pair{"full_attention", 5e5},
                                   std::pair{"sliding_attention", 1e4}}) {
    Json& all = ropes["rope_parameters"];
    if (!all.is_object() || !all.contains(type) || !all[type].is_object()) {
      continue;
    }
    if (JsonFind(all[type], "rope_theta") == nullptr) {
      all[type]["rope_theta"] = base;
    }
  }
  return ropes;
}

}  // namespace inlay
