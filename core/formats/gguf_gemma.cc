#include "core/formats/gguf_gemma.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "memory/status.h"

namespace inlay {
namespace {

// Of those with so many layers, the families' largest, queries are scaled by
// the width a head would have without a size of its own.
constexpr int64_t kGemma2WideLayers = 46;
constexpr int64_t kGemma3WideLayers = 62;

}  // namespace

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
    return absl::InvalidArgumentError(absl::StrFormat(
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
                         keys.arch() == "gemma3" && !window.has_value(),
                         config);
}

}  // namespace inlay
