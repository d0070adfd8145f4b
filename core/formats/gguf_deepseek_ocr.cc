#include "core/formats/gguf_deepseek_ocr.h"

#include <string>

#include "core/formats/gguf_sizes.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

// A window is Unlimited-OCR's, of what comes after a prompt.
absl::Status ReadGgufDeepseekOcr(const GgufArchKeys& keys,
                                 std::optional<int64_t> window, Json* config) {
  constexpr char kGating[] = "expert_gating_func";
  constexpr int64_t kSoftmax = 1;
  INLAY_ASSIGN_OR_RETURN(const auto gating, keys.Int(kGating, 0, INT32_MAX));
  const int64_t score = gating.value_or(0);
  if (score != 0 && score != kSoftmax) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: %d (softmax)", keys.Name(kGating),
                        score, kSoftmax));
  }
  if (window.has_value()) {
    return absl::UnimplementedError(
        FormattedString("%s is %d, allowed: none",
                        keys.Name("attention.sliding_window"), *window));
  }
  INLAY_ASSIGN_OR_RETURN(const auto groups,
                         keys.Int("expert_group_count", 0, kMaxGgufSize));
  (*config)["topk_method"] =
      groups.value_or(1) > 1 ? "group_limited_greedy" : "greedy";
  return absl::OkStatus();
}

// llama.cpp has one rope there, and as many heads of keys as of queries.
absl::Status CheckGgufDeepseekOcr(const GgufKeyWriter& keys,
                                  const GgufHeads& heads) {
  constexpr double kBase = 10000.0;
  const Json& config = keys.config();
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  if (heads.key != heads.query) {
    return keys.NotSaid("num_key_value_heads", heads.key);
  }
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* rope = JsonFind(config, key);
    if (rope == nullptr || !rope->is_object()) continue;
    INLAY_ASSIGN_OR_RETURN(const double theta,
                           JsonNumber(*rope, "rope_theta", kBase, 0.0, 1e15));
    INLAY_ASSIGN_OR_RETURN(const std::string old,
                           JsonString(*rope, "type", "default"));
    INLAY_ASSIGN_OR_RETURN(const std::string type,
                           JsonString(*rope, "rope_type", old));
    if (theta != kBase || type != "default") return keys.NotSaid(key, *rope);
  }
  return keys.Expect("rope_theta", kBase);
}

}  // namespace inlay
