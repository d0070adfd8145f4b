// A WeightSource that takes tensors of another apart. Knows nothing of what
// they mean.
#ifndef INLAY_CORE_FORMATS_SLICED_SOURCE_H_
#define INLAY_CORE_FORMATS_SLICED_SOURCE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/tensor_slice.h"
#include "core/formats/weight_source.h"

namespace inlay {

// A tensor as it is presented: a slice, or the stored one of that name.
struct SlicedTensor {
  WeightInfo info;
  TensorSlice slice;
  bool is_slice = false;
};

// Slices point into `stored`. INVALID_ARGUMENT where two have one name.
absl::StatusOr<std::shared_ptr<const WeightSource>> MakeSlicedSource(
    std::shared_ptr<const WeightSource> stored,
    std::vector<SlicedTensor> tensors);

}  // namespace inlay

#endif  // INLAY_CORE_FORMATS_SLICED_SOURCE_H_
