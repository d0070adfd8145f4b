#include "core/formats/gguf_windows.h"

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

constexpr char kPattern[] = "attention.sliding_window_pattern";
constexpr char kWindow[] = "attention.sliding_window";
constexpr char kWindowBase[] = "rope.freq_base_swa";

// KV heads of layers with windows, and of those without.
absl::Status ReadMimoHeads(const GgufArchKeys& keys,
                           const std::vector<bool>& slides, Json* config) {
  constexpr char kHeads[] = "attention.head_count_kv";
  INLAY_ASSIGN_OR_RETURN(const auto predictors,
                         keys.Int("nextn_predict_layers", 0, kMaxGgufLayers));
  INLAY_ASSIGN_OR_RETURN(
      const std::vector<int64_t> heads,
      keys.LayerInts(
          kHeads, static_cast<int64_t>(slides.size()) + predictors.value_or(0),
          1, kMaxGgufSize));
  int64_t of_windows = 0, of_full = 0;
  for (size_t i = 0; i < slides.size(); ++i) {
    int64_t& kind = slides[i] ? of_windows : of_full;
    if (kind != 0 && kind != heads[i]) {
      return absl::UnimplementedError(FormattedString(
          "%s: allowed: one number for layers with windows, and one for the "
          "others",
          keys.Name(kHeads)));
    }
    kind = heads[i];
  }
  // Where all layers are of one kind nobody reads the other's.
  (*config)["num_key_value_heads"] = of_full != 0 ? of_full : of_windows;
  (*config)["swa_num_key_value_heads"] = of_windows != 0 ? of_windows : of_full;
  return absl::OkStatus();
}

// The rope of windowed layers, where config.json nests them.
const Json* NestedRope(const Json& config, const char* type) {
  const Json* ropes = JsonFind(config, "rope_parameters");
  return ropes == nullptr ? nullptr : JsonFind(*ropes, type);
}

// Windowed layers have a plain rope.
absl::Status CheckWindowRope(const GgufKeyWriter& keys, double partial) {
  const Json* nested = NestedRope(keys.config(), "sliding_attention");
  if (nested == nullptr) return absl::OkStatus();
  INLAY_ASSIGN_OR_RETURN(const std::string type,
                         JsonString(*nested, "rope_type", "default"));
  if (type != "default") {
    return keys.NotSaid("rope_parameters", keys.config()["rope_parameters"]);
  }
  const Json* full = NestedRope(keys.config(), "full_attention");
  const Json none = Json::object();
  INLAY_ASSIGN_OR_RETURN(
      partial,
      JsonNumber(keys.config(), "partial_rotary_factor", partial, 0.0, 1.0));
  INLAY_ASSIGN_OR_RETURN(
      const double own,
      JsonNumber(*nested, "partial_rotary_factor", partial, 0.0, 1.0));
  INLAY_ASSIGN_OR_RETURN(
      const double other,
      JsonNumber(full == nullptr ? none : *full, "partial_rotary_factor",
                 partial, 0.0, 1.0));
  return own == other ? absl::OkStatus()
                      : keys.NotSaid("partial_rotary_factor", own);
}

// Where the writer of ropes has found none nested.
absl::Status SetWindowBase(GgufKeyWriter& keys, const char* key) {
  const Json* nested = NestedRope(keys.config(), "sliding_attention");
  if (nested != nullptr && JsonFind(*nested, "rope_theta") != nullptr) {
    return absl::OkStatus();
  }
  INLAY_ASSIGN_OR_RETURN(const double base,
                         JsonNumber(keys.config(), key, 1e4, 1.0, 1e15));
  return keys.SetF32(kWindowBase, base);
}

// Which layers have windows: layer_types, hybrid_layer_pattern, or all but the
// first and each sixth.
absl::StatusOr<std::vector<bool>> MimoWindows(const GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  const Json* types = JsonFind(keys.config(), "layer_types");
  const Json* pattern = JsonFind(keys.config(), "hybrid_layer_pattern");
  std::vector<bool> slides;
  for (int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    bool sliding = i > 0 && (i + 1) % 6 != 0;
    if (types != nullptr && types->is_array() && at < types->size()) {
      sliding = (*types)[at] == "sliding_attention";
    } else if (types == nullptr && pattern != nullptr && pattern->is_array() &&
               at < pattern->size()) {
      sliding = (*pattern)[at] == 1;
    }
    slides.push_back(sliding);
  }
  return slides;
}

}  // namespace

absl::StatusOr<std::vector<bool>> ReadGgufLayerFlags(const GgufArchKeys& keys,
                                                     std::string_view key,
                                                     int64_t layers) {
  std::vector<bool> flags;
  const GgufValue* value = keys.Find(key);
  const auto count = static_cast<size_t>(layers);
  const bool is_list = value != nullptr && value->is_array;
  if (is_list && value->type == GgufType::kBool && value->count >= count) {
    for (size_t i = 0; i < count; ++i) {
      flags.push_back(value->data[i] != std::byte{0});
    }
    return flags;
  }
  std::optional<std::vector<int64_t>> numbers;
  if (is_list && value->type != GgufType::kBool) {
    INLAY_ASSIGN_OR_RETURN(numbers, keys.Ints(key));
  }
  if (!numbers.has_value() || numbers->size() < count) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: allowed: a flag for each of %d layers", keys.Name(key), layers));
  }
  for (size_t i = 0; i < count; ++i) flags.push_back((*numbers)[i] != 0);
  return flags;
}

absl::Status ReadGgufMimo(const GgufFiles& files, const GgufArchKeys& keys,
                          const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(
      (*config)["sliding_window"],
      keys.Required(kWindow, keys.Int(kWindow, 1, kMaxGgufSize)));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> slides,
                         ReadGgufLayerFlags(keys, kPattern, sizes.layers));
  INLAY_RETURN_IF_ERROR(ReadMimoHeads(keys, slides, config));
  (*config)["v_head_dim"] = sizes.value_dim;
  INLAY_ASSIGN_OR_RETURN(const auto scale,
                         keys.Number("attention.value_scale"));
  (*config)["attention_value_scale"] =
      scale.has_value() && *scale != 0.0 ? Json(*scale) : Json();
  (*config)["swa_rope_theta"] = (*config)["rope_theta"];
  INLAY_RETURN_IF_ERROR(keys.CopyNumber(kWindowBase, "swa_rope_theta", config));
  // Files without a part mean all of a head.
  if (!config->contains("partial_rotary_factor")) {
    (*config)["partial_rotary_factor"] = 1.0;
  }
  Json pattern = Json::array();
  Json experts = Json::array();
  bool window_sinks = false, full_sinks = false;
  for (size_t i = 0; i < slides.size(); ++i) {
    const auto has = [&](const char* name) {
      return files.FindTensor(FormattedString("blk.%d.%s.weight", i, name)) !=
             nullptr;
    };
    pattern.push_back(slides[i] ? 1 : 0);
    experts.push_back(has("ffn_gate_inp") ? 1 : 0);
    (slides[i] ? window_sinks : full_sinks) |= has("attn_sinks");
  }
  (*config)["hybrid_layer_pattern"] = std::move(pattern);
  (*config)["moe_layer_freq"] = std::move(experts);
  (*config)["add_swa_attention_sink_bias"] = window_sinks;
  (*config)["add_full_attention_sink_bias"] = full_sinks;
  (*config)["attention_bias"] =
      files.FindTensor("blk.0.attn_q.bias") != nullptr;
  return absl::OkStatus();
}

absl::Status ReadGgufMellum(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto window, keys.Int(kWindow, 0, kMaxGgufSize));
  Json full = config->value("rope_scaling", Json::object());
  if (!full.contains("rope_type")) full["rope_type"] = "default";
  full["rope_theta"] = (*config)["rope_theta"];
  Json sliding = {{"rope_type", "default"}, {"rope_theta", full["rope_theta"]}};
  INLAY_RETURN_IF_ERROR(keys.CopyNumber(kWindowBase, "rope_theta", &sliding));
  (*config)["rope_parameters"] = {{"full_attention", std::move(full)},
                                  {"sliding_attention", std::move(sliding)}};
  (*config)["attention_bias"] =
      files.FindTensor("blk.0.attn_q.bias") != nullptr;
  if (window.value_or(0) == 0) return absl::OkStatus();
  (*config)["sliding_window"] = *window;
  const GgufValue* pattern = keys.Find(kPattern);
  if (pattern == nullptr || pattern->is_array) {
    return ReadGgufPattern(keys, sizes.layers, false, config);
  }
  // The distance of layers without.
  INLAY_ASSIGN_OR_RETURN(
      const int64_t every,
      keys.Required(kPattern, keys.Int(kPattern, 1, kMaxGgufLayers)));
  Json types = Json::array();
  for (int64_t i = 0; i < sizes.layers; ++i) {
    types.push_back((i + 1) % every == 0 ? "full_attention"
                                         : "sliding_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return absl::OkStatus();
}

absl::Status SetGgufMimoHeads(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const int64_t full,
                         keys.Size("num_key_value_heads", 4));
  INLAY_ASSIGN_OR_RETURN(const int64_t windows,
                         keys.Size("swa_num_key_value_heads", 2 * full));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> slides, MimoWindows(keys));
  std::vector<uint32_t> heads;
  for (const bool sliding : slides) {
    heads.push_back(static_cast<uint32_t>(sliding ? windows : full));
  }
  return keys.SetU32s("attention.head_count_kv", heads);
}

absl::Status SetGgufMimo(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  // What is published under the one name does not count the query itself.
  INLAY_ASSIGN_OR_RETURN(int64_t window, keys.Size("sliding_window", 129));
  if (keys.Has("sliding_window_size")) {
    INLAY_ASSIGN_OR_RETURN(window, keys.Size("sliding_window_size"));
    ++window;
  } else if (keys.IsNull("sliding_window")) {
    return keys.NotSaid("sliding_window", Json());
  }
  INLAY_RETURN_IF_ERROR(keys.SetU32(kWindow, window));
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> slides, MimoWindows(keys));
  const std::vector<int32_t> flags(slides.begin(), slides.end());
  INLAY_RETURN_IF_ERROR(keys.writer().SetI32s(keys.Name(kPattern), flags));
  if (!keys.IsNull("attention_value_scale")) {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber("attention_value_scale",
                                          "attention.value_scale", 0.707));
  }
  INLAY_RETURN_IF_ERROR(CheckWindowRope(keys, 0.334));
  return SetWindowBase(keys, "swa_rope_theta");
}

Json WithMellumRopes(const Json& config) {
  Json ropes = config;
  for (const char* key :
       {"rope_theta", "rope_scaling", "rope_local_base_freq"}) {
    ropes.erase(key);
  }
  return ropes;
}

absl::Status SetGgufMellum(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("norm_topk_prob", true));
  const Json* sparse = JsonFind(keys.config(), "mlp_layer_types");
  for (size_t i = 0; sparse != nullptr && i < sparse->size(); ++i) {
    if (!sparse->is_array() || (*sparse)[i] != "sparse") {
      return keys.NotSaid("mlp_layer_types", *sparse);
    }
  }
  INLAY_RETURN_IF_ERROR(CheckWindowRope(keys, 1.0));
  const Json* types = JsonFind(keys.config(), "layer_types");
  std::vector<bool> slides;
  bool has_windows = false;
  for (size_t i = 0; types != nullptr && types->is_array() && i < types->size();
       ++i) {
    slides.push_back((*types)[i] == "sliding_attention");
    has_windows |= slides.back();
  }
  // Files without a window have none.
  if (!has_windows) return absl::OkStatus();
  if (keys.IsNull("sliding_window")) {
    return keys.NotSaid("sliding_window", Json());
  }
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("sliding_window", kWindow, 1024).status());
  INLAY_RETURN_IF_ERROR(keys.SetBools(kPattern, slides));
  const Json ropes = WithMellumRopes(keys.config());
  const Json* nested = NestedRope(ropes, "sliding_attention");
  if (nested != nullptr && JsonFind(*nested, "rope_theta") != nullptr) {
    return absl::OkStatus();
  }
  return keys.SetF32(kWindowBase, 1e4);
}

}  // namespace inlay
