// What attention's scores grow by with the distance of the key, where kernels
// can read it.
#ifndef INLAY_CORE_MODEL_LAYERS_DISTANCE_BIAS_H_
#define INLAY_CORE_MODEL_LAYERS_DISTANCE_BIAS_H_

#include "absl/status/statusor.h"
#include "core/model/decoder_spec.h"
#include "core/model/model_build.h"
#include "kernels/attention/biased_attention.h"

namespace inlay {

// Each head's numbers side by side, one a distance. Layers that name the same
// table share them, by `build`. Values are null when planning.
absl::StatusOr<ScoreBias> LoadDistanceBias(const DistanceBiasSpec& spec,
                                           int num_heads, ModelBuild& build);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_DISTANCE_BIAS_H_
