#include "core/formats/gguf_grove.h"

#include <cstdint>

#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kGroupSize[] = "experts_per_group";
constexpr char kGroupScale[] = "expert_group_scale";
constexpr char kChunkWidth[] = "expert_chunk_feed_forward_length";
constexpr int64_t kUsualGroup = 2;
constexpr int64_t kUsualChunk = 128;
constexpr double kUsualScale = 0.05;

}  // namespace

absl::Status ReadGgufGrove(const GgufArchKeys& keys, const GgufSizes& sizes,
                           Json* config) {
  INLAY_ASSIGN_OR_RETURN(
      (*config)["num_experts_per_group"],
      keys.Required(kGroupSize, keys.Int(kGroupSize, 1, kMaxGgufSize)));
  INLAY_ASSIGN_OR_RETURN(const auto width,
                         keys.Int(kChunkWidth, 1, kMaxGgufSize));
  (*config)["parallel_expert_intermediate_size"] =
      width.value_or(sizes.head_dim);
  return keys.CopyNumber(kGroupScale, "expert_group_scale", config);
}

absl::Status SetGgufGrove(GgufKeyWriter& keys) {
  INLAY_RETURN_IF_ERROR(keys.Expect("attention_bias", false));
  INLAY_RETURN_IF_ERROR(keys.Expect("use_sliding_window", false));
  INLAY_RETURN_IF_ERROR(keys.CopySize("parallel_expert_intermediate_size",
                                      kChunkWidth, kUsualChunk)
                            .status());
  INLAY_RETURN_IF_ERROR(
      keys.CopySize("num_experts_per_group", kGroupSize, kUsualGroup).status());
  return keys.CopyNumber("expert_group_scale", kGroupScale, kUsualScale);
}

absl::Status CheckGgufArctic(const GgufKeyWriter& keys) {
  constexpr char kEvery[] = "moe_layer_frequency";
  constexpr char kParallel[] = "parallel_attn_mlp_res";
  INLAY_ASSIGN_OR_RETURN(const int64_t every, keys.Size(kEvery, 2));
  if (every != 1) return keys.NotSaid(kEvery, every);
  INLAY_ASSIGN_OR_RETURN(const bool parallel,
                         JsonFlag(keys.config(), kParallel, false));
  if (!parallel) return keys.NotSaid(kParallel, parallel);
  return keys.Expect("sliding_window", Json());
}

}  // namespace inlay
