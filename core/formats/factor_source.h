// Weights in nvfp4 whose file keeps a factor beside them (of a matrix, or of
// each matrix of a stack), presented as nvfp4_f32, whose blocks hold it. Knows
// nothing of where the factors come from.
#ifndef INLAY_CORE_FORMATS_FACTOR_SOURCE_H_
#define INLAY_CORE_FORMATS_FACTOR_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/weight_source.h"

namespace inlay {

struct WeightFactors {
  std::string name;  // of the weight
  // One for each of as many equal parts of the weight.
  std::vector<float> values;
};

// With one factor there is one of all weights in nvfp4, 1 where there is none,
// so that layers side by side stay in one format. All other tensors are those
// of `stored`, which itself comes back where there are no factors. Whoever
// calls has checked that the factors are finite. INVALID_ARGUMENT for a factor
// of no tensor, of one with several, or of one that has no such parts;
// UNIMPLEMENTED for one of another type than nvfp4.
absl::StatusOr<std::shared_ptr<const WeightSource>> PresentFactors(
    std::shared_ptr<const WeightSource> stored,
    const std::vector<WeightFactors>& factors);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_FACTOR_SOURCE_H_
