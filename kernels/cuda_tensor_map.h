// Tensor maps: matrices as Hopper's copy engine knows them (CUDA driver API,
// "Tensor Map Object Management"). The driver's function is looked up at run
// time: the library does not link to it. Knows no ops.
#ifndef INLAY_KERNELS_CUDA_TENSOR_MAP_H_
#define INLAY_KERNELS_CUDA_TENSOR_MAP_H_

#include <cuda.h>

#include "absl/status/statusor.h"

namespace inlay {

// Innermost dimension first.
struct TensorBoxes {
  int rank = 2;  // at most 4
  cuuint64_t sizes[4] = {};
  cuuint64_t strides[3] = {};  // bytes, of all but the innermost
  cuuint32_t box[4] = {};      // elements that a copy brings
};

// A box has at most 256 elements a side: how many equal rows of elements of 8
// bytes so many bytes must be.
constexpr int BoxRowsOf(int bytes) { return (bytes / 8 + 255) / 256; }

// What lies outside of `sizes` arrives as zeros. `what` names the matrix in
// errors. FAILED_PRECONDITION: the driver is too old; INTERNAL: it refuses, as
// it does rows that are not on multiples of 16 bytes.
absl::StatusOr<CUtensorMap> EncodeTensorMap(const char* what, void* data,
                                            CUtensorMapDataType type,
                                            CUtensorMapSwizzle swizzle,
                                            const TensorBoxes& boxes);

}  // namespace inlay

#endif  // INLAY_KERNELS_CUDA_TENSOR_MAP_H_
