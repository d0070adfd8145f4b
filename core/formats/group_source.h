// Checkpoints that hold the layers of a block-diagonal matrix in one tensor, as
// a WeightSource with one matrix each. Sources: DeepSeek-V4's published files;
// transformers' module of RecurrentGemma.
#ifndef INLAY_CORE_FORMATS_GROUP_SOURCE_H_
#define INLAY_CORE_FORMATS_GROUP_SOURCE_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"
#include "core/json/json.h"

namespace inlay {

// Of gates of heads, in all tensors: one takes some 400 bytes, and 4 of the
// file.
inline constexpr size_t kMaxGateTensors = size_t{1} << 18;

// `config`: config.json. Where model_type is "deepseek_v4",
//   P.wo_a.weight [groups * rows, inputs]
// becomes "P.wo_a.N.weight" [rows, inputs], o_groups of them (each with the
// input_permutation, where there is one); where it is
// "recurrent_gemma",
//   P.rg_lru.input_gate_weight [heads, w, w], inputs by outputs, and
//   P.rg_lru.input_gate_bias [heads, w]
// become "P.rg_lru.input_gate.N.weight" [w, w] and ".bias" [w],
// num_attention_heads of them, and those of recurrent_gate likewise. All other
// tensors pass through; where there is no such tensor, `stored` comes back.
// INVALID_ARGUMENT where groups are not of equal size, RESOURCE_EXHAUSTED for
// too many.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentGroups(
    const Json& config, std::shared_ptr<const WeightSource> stored);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_GROUP_SOURCE_H_
