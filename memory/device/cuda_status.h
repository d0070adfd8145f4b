// CUDA's errors as absl::Status.
#ifndef INLAY_MEMORY_DEVICE_CUDA_STATUS_H_
#define INLAY_MEMORY_DEVICE_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

// Whether the error stays: everything later in the process's context on this
// device fails, too.
inline bool CudaErrorStays(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

// DeviceLostError where the error stays; RESOURCE_EXHAUSTED where the device
// has no memory left; otherwise INTERNAL. `what` was tried, as a phrase.
inline absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      FormattedString("cuda: %s: %s (%s)", what, cudaGetErrorString(error),
                      cudaGetErrorName(error));
  if (CudaErrorStays(error)) {
    return DeviceLostError(message +
                           "; the device failed, the engine can only be "
                           "released");
  }
  return error == cudaErrorMemoryAllocation
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

// The error of the kernel launch just before, if any; clears it.
inline absl::Status CudaLaunchStatus(const char* what) {
  return CudaStatus(cudaGetLastError(), what);
}

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_CUDA_STATUS_H_
