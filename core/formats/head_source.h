// Checkpoints that hold q, k and v in one tensor head by head, as a
// WeightSource with one matrix each. Source: transformers' gpt_neox.
#ifndef INLAY_CORE_FORMATS_HEAD_SOURCE_H_
#define INLAY_CORE_FORMATS_HEAD_SOURCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// `config`: config.json. Where model_type is "gpt_neox",
//   P.query_key_value.weight [heads * (q, k, v) * head_dim, inputs]
//   P.query_key_value.bias   the same rows
// become "P.q_proj.weight", "P.k_proj.weight", "P.v_proj.weight" and biases.
// All other tensors pass through; where there is no such tensor, `stored` comes
// back. INVALID_ARGUMENT where rows are not three parts of all heads.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentHeads(
    const Json& config, std::shared_ptr<const WeightSource> stored);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_HEAD_SOURCE_H_
