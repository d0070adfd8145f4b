#include "core/formats/gguf_minicpm.h"

#include <cmath>

#include "memory/status.h"

namespace inlay {
namespace {

constexpr double kFirstEmbedding = 12.0;
constexpr double kFirstDepth = 1.4;
constexpr double kFirstBase = 256.0;

// A factor of config.json that may be null.
absl::StatusOr<double> Factor(const GgufKeyWriter& keys, const char* key) {
  if (keys.IsNull(key)) return keys.NotSaid(key, Json());
  return JsonNumber(keys.config(), key, 1.0, -1e6, 1e6);
}

}  // namespace

absl::Status ReadGgufMiniCpm(const GgufArchKeys& keys, const GgufSizes& sizes,
                             Json* config) {
  INLAY_ASSIGN_OR_RETURN(const auto embedding, keys.Number("embedding_scale"));
  INLAY_ASSIGN_OR_RETURN(const auto residual, keys.Number("residual_scale"));
  INLAY_ASSIGN_OR_RETURN(const auto logits, keys.Number("logit_scale"));
  const double depth = std::sqrt(static_cast<double>(sizes.layers));
  const auto width = static_cast<double>(sizes.hidden);
  (*config)["scale_emb"] = embedding.value_or(kFirstEmbedding);
  (*config)["scale_depth"] =
      residual.has_value() ? *residual * depth : kFirstDepth;
  (*config)["dim_model_base"] =
      logits.value_or(0.0) != 0.0 ? width / *logits : kFirstBase;
  return absl::OkStatus();
}

absl::Status SetGgufMiniCpm(GgufKeyWriter& keys) {
  INLAY_ASSIGN_OR_RETURN(const double embedding, Factor(keys, "scale_emb"));
  INLAY_ASSIGN_OR_RETURN(const double depth, Factor(keys, "scale_depth"));
  INLAY_ASSIGN_OR_RETURN(const double base, Factor(keys, "dim_model_base"));
  INLAY_ASSIGN_OR_RETURN(const int64_t layers, keys.Size("num_hidden_layers"));
  INLAY_ASSIGN_OR_RETURN(const int64_t width, keys.Size("hidden_size"));
  INLAY_RETURN_IF_ERROR(keys.SetF32("embedding_scale", embedding));
  INLAY_RETURN_IF_ERROR(keys.SetF32(
      "residual_scale", depth / std::sqrt(static_cast<double>(layers))));
  return keys.SetF32("logit_scale", static_cast<double>(width) / base);
}

}  // namespace inlay
