#include "core/formats/gguf_smallthinker.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/formats/gguf_windows.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kSmallWindow[] = "attention.sliding_window";
constexpr char kSmallPattern[] = "attention.sliding_window_pattern";
constexpr char kSmallGating[] = "expert_gating_func";
constexpr int64_t kSmallSoftmax = 1;
constexpr int64_t kSmallSigmoid = 2;
// Where there are windows, of so many layers the first has neither one nor
// rope.
constexpr int64_t kSmallPeriod = 4;

// Which layers have windows.
absl::StatusOr<std::vector<bool>> ReadSmallWindows(const GgufArchKeys& keys,
                                                   int64_t layers) {
  const GgufValue* pattern = keys.Find(kSmallPattern);
  if (pattern != nullptr && pattern->is_array) {
    return ReadGgufLayerFlags(keys, kSmallPattern, layers);
  }
  INLAY_ASSIGN_OR_RETURN(const auto every,
                         keys.Int(kSmallPattern, 1, kMaxGgufLayers));
  std::vector<bool> slides;
  for (int64_t i = 0; i < layers; ++i) {
    slides.push_back(i % every.value_or(kSmallPeriod) != 0);
  }
  return slides;
}

}  // namespace

absl::Status ReadGgufSmallThinker(const GgufArchKeys& keys,
                                  const GgufSizes& sizes, Json* config) {
  INLAY_ASSIGN_OR_RETURN(
      const int64_t gating,
      keys.Required(kSmallGating, keys.Int(kSmallGating, 0, INT32_MAX)));
  if (gating != kSmallSoftmax && gating != kSmallSigmoid) {
    return absl::UnimplementedError(FormattedString(
        "%s is %d, allowed: %d (softmax), %d (sigmoid)",
        keys.Name(kSmallGating), gating, kSmallSoftmax, kSmallSigmoid));
  }
  (*config)["moe_primary_router_apply_softmax"] = gating == kSmallSoftmax;
  INLAY_ASSIGN_OR_RETURN(const auto window,
                         keys.Int(kSmallWindow, 0, kMaxGgufSize));
  if (window.value_or(0) == 0) return absl::OkStatus();
  (*config)["sliding_window_size"] = *window;
  INLAY_ASSIGN_OR_RETURN(const std::vector<bool> slides,
                         ReadSmallWindows(keys, sizes.layers));
  Json rotates = Json::array(), windows = Json::array();
  for (size_t i = 0; i < slides.size(); ++i) {
    windows.push_back(slides[i] ? 1 : 0);
    rotates.push_back(static_cast<int64_t>(i) % kSmallPeriod != 0 ? 1 : 0);
  }
  (*config)["sliding_window_layout"] = std::move(windows);
  (*config)["rope_layout"] = std::move(rotates);
  return absl::OkStatus();
}

absl::Status SetGgufSmallThinker(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(
      const bool softmax,
      JsonFlag(keys.config(), "moe_primary_router_apply_softmax", false));
  INLAY_RETURN_IF_ERROR(
      keys.SetU32(kSmallGating, softmax ? kSmallSoftmax : kSmallSigmoid));
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  const Json* windows = JsonFind(keys.config(), "sliding_window_layout");
  bool slides = false;
  const bool has_windows = windows != nullptr && windows->is_array();
  for (size_t i = 0; has_windows && i < windows->size(); ++i) {
    slides |= (*windows)[i] != 0;
  }
  const auto is_usual = [&](const Json* list) {
    if (list == nullptr) return !slides;
    bool is_one =
        list->is_array() && list->size() == static_cast<size_t>(layers);
    for (size_t i = 0; is_one && i < list->size(); ++i) {
      is_one = (*list)[i] == (slides && i % kSmallPeriod == 0 ? 0 : 1);
    }
    return is_one;
  };
  const Json* rotates = JsonFind(keys.config(), "rope_layout");
  if (!is_usual(rotates)) {
    return keys.NotSaid("rope_layout",
                        rotates == nullptr ? Json() : Json(*rotates));
  }
  if (!slides) return absl::OkStatus();
  if (!is_usual(windows))
    return keys.NotSaid("sliding_window_layout", *windows);
  return keys.CopySize("sliding_window", kSmallWindow, 4096).status();
}

}  // namespace inlay
