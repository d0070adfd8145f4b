#include "core/formats/qwen_config.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "memory/status.h"

namespace inlay {

absl::StatusOr<Json> WithUsualQwenNames(const Json& config) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"kv_channels", "head_dim"},
      {"layer_norm_epsilon", "rms_norm_eps"},
      {"rotary_emb_base", "rope_theta"},
      {"rotary_pct", "partial_rotary_factor"}};
  Json usual = config;
  for (const auto& [own, name] : kNames) {
    const Json* value = JsonFind(config, own);
    if (value != nullptr) usual[name] = *value;
  }
  // Whatever it says: each head of queries has keys of its own.
  usual.erase("num_key_value_heads");
  INLAY_ASSIGN_OR_RETURN(const bool other_base,
                         JsonBool(config, "use_dynamic_ntk", true));
  INLAY_ASSIGN_OR_RETURN(const bool scales_queries,
                         JsonBool(config, "use_logn_attn", true));
  if (!other_base && !scales_queries) return usual;
  constexpr char kPositions[] = "max_position_embeddings";
  constexpr char kTrained[] = "seq_length";
  constexpr int64_t kMost = int64_t{1} << 28;
  INLAY_ASSIGN_OR_RETURN(const int64_t positions,
                         JsonInt(config, kPositions, 8192, 1, kMost));
  INLAY_ASSIGN_OR_RETURN(const int64_t trained,
                         JsonInt(config, kTrained, positions, 1, kMost));
  usual[kPositions] = std::min(positions, trained);
  return usual;
}

}  // namespace inlay
