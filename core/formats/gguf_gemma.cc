#include "core/formats/gguf_gemma.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of those with so many layers, the families' largest, queries are scaled by
// the width a head would have without a size of its own.
constexpr int64_t kGemma2WideLayers = 46;
constexpr int64_t kGemma3WideLayers = 62;

// What divides the frequencies of a rope that leaves them alone.
constexpr float kNoRotation = 1e29f;

// The part of a full layer's head that rotates: factors are 1, then so large
// that nothing turns.
absl::StatusOr<double> RotatedPart(const GgufFiles& files, int64_t head_dim) {
  INLAY_ASSIGN_OR_RETURN(const auto factors,
                         files.ReadVector("rope_freqs.weight"));
  if (!factors.has_value()) return 1.0;
  const auto rotated = std::find_if(factors->begin(), factors->end(),
                                    [](float factor) { return factor != 1; });
  const bool is_known = static_cast<int64_t>(factors->size()) == head_dim / 2 &&
                        std::all_of(rotated, factors->end(), [](float factor) {
                          return factor >= kNoRotation;
                        });
  if (!is_known) {
    return absl::UnimplementedError(FormattedString(
        "tensor \"rope_freqs.weight\": %d factors, allowed: one for each pair "
        "of %d dimensions, first 1, then at least %g",
        factors->size(), head_dim, kNoRotation));
  }
  // The fraction is multiplied out and cut off again: stay above the integer.
  const double dims = 2.0 * static_cast<double>(rotated - factors->begin());
  return std::min((dims + 0.5) / static_cast<double>(head_dim), 1.0);
}

absl::Status ReadGemma4Ropes(const GgufFiles& files, const GgufArchKeys& keys,
                             const GgufSizes& sizes, int64_t window_dim,
                             Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto rotated,
                         keys.Int("rope.dimension_count_swa", 2, kMaxGgufSize));
  if (rotated.value_or(window_dim) != window_dim) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d, allowed: the %d of a head",
        keys.Name("rope.dimension_count_swa"), *rotated, window_dim));
  }
  INLAY_ASSIGN_OR_RETURN(const auto base, keys.Number("rope.freq_base"));
  INLAY_ASSIGN_OR_RETURN(const auto window_base,
                         keys.Number("rope.freq_base_swa"));
  INLAY_ASSIGN_OR_RETURN(const double part, RotatedPart(files, sizes.head_dim));
  (*config)["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", base.value_or(10000.0)},
        {"partial_rotary_factor", part}}},
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", window_base.value_or(10000.0)}}}};
  return absl::OkStatus();
}

// Layers without keys of their own have MLPs as wide as the others, or twice.
absl::Status ReadGemma4Widths(const GgufArchKeys& keys, const GgufSizes& sizes,
                              int64_t shared, Json* config) {
  constexpr char kInner[] = "feed_forward_length";
  INLAY_ASSIGN_OR_RETURN(const auto widths,
                         keys.LayerInts(kInner, sizes.layers, 1, kMaxGgufSize));
  const bool is_wide = shared > 0 && widths.back() == 2 * sizes.inner;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const bool doubles = is_wide && i >= sizes.layers - shared;
    if (widths[static_cast<size_t>(i)] == (doubles ? 2 : 1) * sizes.inner) {
      continue;
    }
    return absl::UnimplementedError(FormattedString(
        "%s: %d in layer %d, allowed: %d, or twice that in all of the last %d",
        keys.Name(kInner), widths[static_cast<size_t>(i)], i, sizes.inner,
        shared));
  }
  (*config)["use_double_wide_mlp"] = is_wide;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadGgufGemma4(const GgufFiles& files, const GgufArchKeys& keys,
                            const GgufSizes& sizes, Json* config) {
  constexpr char kWindowDim[] = "attention.key_length_swa";
  constexpr char kWindow[] = "attention.sliding_window";
  constexpr char kPattern[] = "attention.sliding_window_pattern";
  INLAY_ASSIGN_OR_RETURN(
      const int64_t window,
      keys.Required(kWindow, keys.Int(kWindow, 1, kMaxGgufSize)));
  INLAY_ASSIGN_OR_RETURN(const auto dim, keys.Int(kWindowDim, 1, kMaxGgufSize));
  const int64_t window_dim = dim.value_or(sizes.head_dim);
  INLAY_ASSIGN_OR_RETURN(
      const auto shared,
      keys.Int("attention.shared_kv_layers", 0, sizes.layers - 1));
  INLAY_ASSIGN_OR_RETURN(
      const auto per_layer,
      keys.Int("embedding_length_per_layer_input", 0, kMaxGgufSize));
  INLAY_ASSIGN_OR_RETURN(
      const auto kv_heads,
      keys.LayerInts("attention.head_count_kv", sizes.layers, 1, kMaxGgufSize));
  INLAY_RETURN_IF_ERROR(ReadGgufPattern(keys, sizes.layers, false, config));
  if (!config->contains("layer_types")) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: allowed: a bool for each layer", keys.Name(kPattern)));
  }
  Json heads = Json::object();
  bool keys_as_values = false;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const auto has = [&](const char* name) {
      return files.FindTensor(FormattedString("blk.%d.%s.weight", i, name)) !=
             nullptr;
    };
    const bool slides =
        (*config)["layer_types"][static_cast<size_t>(i)] == "sliding_attention";
    heads[FormattedString("%d", i)] = {
        {"head_dim", slides ? window_dim : sizes.head_dim},
        {"num_key_value_heads", kv_heads[static_cast<size_t>(i)]}};
    keys_as_values |= !slides && has("attn_k") && !has("attn_v");
  }
  (*config)["per_layer_config"] = std::move(heads);
  (*config)["head_dim"] = window_dim;
  (*config)["num_key_value_heads"] = kv_heads.front();
  (*config)["attention_k_eq_v"] = keys_as_values;
  (*config)["sliding_window"] = window;
  (*config)["num_kv_shared_layers"] = shared.value_or(0);
  (*config)["hidden_size_per_layer_input"] = per_layer.value_or(0);
  (*config)["vocab_size_per_layer_input"] = sizes.vocab;
  INLAY_RETURN_IF_ERROR(
      ReadGemma4Widths(keys, sizes, shared.value_or(0), config));
  INLAY_RETURN_IF_ERROR(keys.CopyNumber("final_logit_softcapping",
                                        "final_logit_softcapping", config));
  return ReadGemma4Ropes(files, keys, sizes, window_dim, config);
}

absl::Status ReadGgufPattern(const GgufArchKeys& keys, int64_t layers,
                             bool all_full, Json* config) {
  constexpr char kPattern[] = "attention.sliding_window_pattern";
  const GgufValue* pattern = keys.Find(kPattern);
  if (pattern == nullptr) {
    if (all_full) (*config)["sliding_window_pattern"] = 1;
    return absl::OkStatus();
  }
  if (!pattern->is_array) {
    INLAY_ASSIGN_OR_RETURN(const auto every,
                           keys.Int(kPattern, 1, kMaxGgufLayers));
    (*config)["sliding_window_pattern"] = *every;
    return absl::OkStatus();
  }
  if (pattern->type != GgufType::kBool ||
      pattern->count != static_cast<uint64_t>(layers)) {
    return absl::InvalidArgumentError(FormattedString(
        "%s: %d values of type %s, allowed: an integer, or a bool for each of "
        "%d layers",
        keys.Name(kPattern), pattern->count, GgufTypeName(pattern->type),
        layers));
  }
  Json types = Json::array();
  for (const std::byte slides : pattern->data) {
    types.push_back(slides == std::byte{0} ? "full_attention"
                                           : "sliding_attention");
  }
  (*config)["layer_types"] = std::move(types);
  return absl::OkStatus();
}

absl::Status ReadGgufGemma(const GgufArchKeys& keys, const GgufSizes& sizes,
                           std::optional<int64_t> window, Json* config) {
  const int64_t wide_layers =
      keys.arch() == "gemma2" ? kGemma2WideLayers : kGemma3WideLayers;
  (*config)["query_pre_attn_scalar"] = static_cast<double>(
      sizes.layers == wide_layers ? sizes.hidden / sizes.heads
                                  : sizes.head_dim);
  INLAY_ASSIGN_OR_RETURN(const auto scale, keys.Number("attention.scale"));
  if (scale.value_or(0.0) > 0.0) {
    (*config)["query_pre_attn_scalar"] = 1.0 / (*scale * *scale);
  }
  if (window.has_value()) (*config)["sliding_window"] = *window;
  const struct {
    const char* key;
    const char* name;
  } numbers[] = {{"attn_logit_softcapping", "attn_logit_softcapping"},
                 {"final_logit_softcapping", "final_logit_softcapping"},
                 {"rope.freq_base_swa", "rope_local_base_freq"}};
  for (const auto& [key, name] : numbers) {
    INLAY_RETURN_IF_ERROR(keys.CopyNumber(key, name, config));
  }
  return ReadGgufPattern(keys, sizes.layers,
                         keys.arch() != "gemma2" && !window.has_value(),
                         config);
}

}  // namespace inlay
