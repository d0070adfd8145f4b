// RowScale: multiplies each row of a matrix by a factor of its own, with the
// rotation of `rope`, which every device has: pairs of neighbours turn by
// nothing, their cosines are the factors.
#ifndef INLAY_CORE_MODEL_LAYERS_ROW_SCALE_H_
#define INLAY_CORE_MODEL_LAYERS_ROW_SCALE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/model/model_build.h"
#include "kernels/rope/rope.h"

namespace inlay {

class RowScale {
 public:
  // `width`: of the matrices, of ModelBuild::activation; even.
  static absl::StatusOr<RowScale> Create(int64_t width,
                                         const ModelBuild& build);
  // x [rows, width], rows may be strided; `factors` and `zeros` [rows].
  absl::Status Forward(const TensorView& x, const float* factors,
                       const float* zeros, Stream& stream) const;

 private:
  Op<RopeDesc, RopeParams> rope_;
};

}  // namespace inlay

#endif  // INLAY_CORE_MODEL_LAYERS_ROW_SCALE_H_
