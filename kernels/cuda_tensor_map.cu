#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "kernels/cuda_tensor_map.h"
#include "memory/device/cuda_status.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<CUtensorMap> EncodeTensorMap(const char* what, void* data,
                                            CUtensorMapDataType type,
                                            CUtensorMapSwizzle swizzle,
                                            const TensorBoxes& boxes) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  INLAY_RETURN_IF_ERROR(CudaStatus(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                       12000, cudaEnableDefault, &found),
      "finding cuTensorMapEncodeTiled in the driver"));
  if (function == nullptr) {
    return absl::FailedPreconditionError(
        "the driver has no cuTensorMapEncodeTiled; expected one of CUDA 12 or "
        "later");
  }
  constexpr cuuint32_t kStep[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(
      function)(
      &map, type, static_cast<cuuint32_t>(boxes.rank), data, boxes.sizes,
      boxes.strides, boxes.box, kStep, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return map;
  return absl::InternalError(FormattedString(
      "describing %s at %p, %d dimensions, %d by %d, rows %d bytes apart: "
      "error %d; expected rows on multiples of 16 bytes",
      what, data, boxes.rank, boxes.sizes[0], boxes.sizes[1], boxes.strides[0],
      static_cast<int>(result)));
}

}  // namespace inlay
