// Positions that a network computes instead of storing them, as one tensor more
// of a WeightSource. Source: transformers' XGLMSinusoidalPositionalEmbedding,
// which is tensor2tensor's (Vaswani et al., arXiv:1706.03762, 3.5, with sines
// and cosines side by side).
#ifndef INLAY_CORE_FORMATS_SINUSOID_SOURCE_H_
#define INLAY_CORE_FORMATS_SINUSOID_SOURCE_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// The tensor's name, which stands for nothing that files have.
inline constexpr std::string_view kComputedPositions =
    "model.embed_positions.computed";

// `config`: config.json. Where model_type is "xglm": `stored` and the rows of
// max_position_embeddings positions behind two, d_model floats each, all 0 in
// row pad_token_id. Else `stored`. INVALID_ARGUMENT for sizes out of range.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentSinusoids(
    const Json& config, std::shared_ptr<const WeightSource> stored);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_SINUSOID_SOURCE_H_
