// CUDA's errors as absl::Status.
#ifndef INLAY_MEMORY_DEVICE_CUDA_STATUS_H_
#define INLAY_MEMORY_DEVICE_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace inlay {

// RESOURCE_EXHAUSTED where the device has no memory left; otherwise INTERNAL.
// `what` was tried, as a phrase.
inline absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrFormat(
      "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
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
