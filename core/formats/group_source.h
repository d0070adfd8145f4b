// Checkpoints that hold the layers of a block-diagonal matrix in one tensor, as
// a WeightSource with one matrix each. Source: DeepSeek-V4's published files.
#ifndef INLAY_CORE_FORMATS_GROUP_SOURCE_H_
#define INLAY_CORE_FORMATS_GROUP_SOURCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// `config`: config.json. Where model_type is "deepseek_v4",
//   P.wo_a.weight [groups * rows, inputs]
// becomes "P.wo_a.N.weight" [rows, inputs], o_groups of them. All other tensors
// pass through; where there is no such tensor, `stored` comes back.
// INVALID_ARGUMENT where groups are not of equal size.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentGroups(
    const Json& config, std::shared_ptr<const WeightSource> stored);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GROUP_SOURCE_H_
