// Tensor maps (CUDA driver API, "Tensor Map Object Management") of the matrices
// that gemm's kernels for Hopper copy: 16-bit elements, boxes of 64 columns
// side by side in shared memory, 128-byte swizzle.
#ifndef INLAY_KERNELS_GEMM_TENSOR_MAP_H_
#define INLAY_KERNELS_GEMM_TENSOR_MAP_H_

#include <cuda.h>

#include "absl/status/statusor.h"
#include "memory/tensor.h"

namespace inlay {

inline constexpr int kMapColumns = 64;

// Weights as [columns of 64][halves][rows of a half][64]; a box is [columns]
// [halves][rows][64]. `halves`: 1, or 2 where w is two matrices, gates and ups.
// For CopyBox().
absl::StatusOr<CUtensorMap> MapOfWeights(const TensorView& w, int rows,
                                         int halves = 1, int columns = 1);
// The rows of x, up to `rows`, zeros where it has fewer; a box is [rows][64].
// For CopyColumns().
absl::StatusOr<CUtensorMap> MapOfColumns(const TensorView& x, int rows);

}  // namespace inlay

#endif  // INLAY_KERNELS_GEMM_TENSOR_MAP_H_
