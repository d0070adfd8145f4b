#include "core/formats/gguf_baichuan.h"

#include "core/formats/baichuan_config.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr char kAlibiBias[] = "attention.max_alibi_bias";
constexpr double kUsualBias = 8.0;  // the paper's, and none for rope
constexpr int64_t kRotaryLayers = 32;
constexpr int64_t kAlibiLayers = 40;

}  // namespace

absl::Status ReadGgufBaichuan(const GgufArchKeys& keys, const GgufSizes& sizes,
                              Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto bias, keys.Number(kAlibiBias));
  if (bias.has_value() && *bias != 0.0 && *bias != kUsualBias) {
    return absl::UnimplementedError(
        FormattedString("%s is %g, allowed: 0 or %g", keys.Name(kAlibiBias),
                        *bias, kUsualBias));
  }
  const bool is_known =
      sizes.layers == kRotaryLayers || sizes.layers == kAlibiLayers;
  if (!bias.has_value() && !is_known) {
    return absl::UnimplementedError(
        FormattedString("%s is %d without %s, allowed: %d (rope) or %d (ALiBi)",
                        keys.Name("block_count"), sizes.layers,
                        keys.Name(kAlibiBias), kRotaryLayers, kAlibiLayers));
  }
  const bool alibi =
      bias.has_value() ? *bias != 0.0 : sizes.layers == kAlibiLayers;
  (*config)["position_embedding"] = alibi ? "alibi" : "rope";
  (*config)["norm_head"] = false;
  return absl::OkStatus();
}

absl::Status SetGgufBaichuan(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const bool alibi, BaichuanHasAlibi(keys.config()));
  INLAY_RETURN_IF_ERROR(keys.Expect("tie_word_embeddings", false));
  return keys.SetF32(kAlibiBias, alibi ? kUsualBias : 0.0);
}

}  // namespace inlay
