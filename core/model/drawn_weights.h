// Random weights as a WeightSource: the tensors that a "random:" path stands
// for, drawn as they are read, to the bit as loading draws them.
#ifndef INLAY_CORE_MODEL_DRAWN_WEIGHTS_H_
#define INLAY_CORE_MODEL_DRAWN_WEIGHTS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/model_files.h"
#include "core/model/weights.h"
#include "memory/device/thread_pool.h"

namespace inlay {

// `planned`: of the model at that path (PlanWeights). Matrices are [outputs,
// inputs] and have the dtype of the draw, vectors are f32: 0, and 1 for norms
// that are not centred at zero. Draws on `pool`, which must outlive it.
// UNIMPLEMENTED for draws in block formats.
absl::StatusOr<std::shared_ptr<const WeightSource>> MakeDrawnWeights(
    const RandomWeights& draw, const std::vector<PlannedWeight>& planned,
    ThreadPool& pool);

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_DRAWN_WEIGHTS_H_
