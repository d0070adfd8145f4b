// CudaDriver: the few functions of the CUDA driver that the runtime does not
// wrap: contexts of the host to give back, addresses apart from memory. Found
// at run time; nothing links libcuda.
#ifndef INLAY_MEMORY_DEVICE_CUDA_DRIVER_H_
#define INLAY_MEMORY_DEVICE_CUDA_DRIVER_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "absl/status/statusor.h"

namespace inlay {

struct CudaDriver {
  decltype(&cuCtxGetCurrent) ctx_get_current = nullptr;
  decltype(&cuCtxSetCurrent) ctx_set_current = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primary_ctx_retain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) primary_ctx_release = nullptr;
  decltype(&cuMemGetAllocationGranularity) mem_granularity = nullptr;
  decltype(&cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&cuMemAddressFree) mem_address_free = nullptr;
  decltype(&cuMemCreate) mem_create = nullptr;
  decltype(&cuMemRelease) mem_release = nullptr;
  decltype(&cuMemMap) mem_map = nullptr;
  decltype(&cuMemUnmap) mem_unmap = nullptr;
  decltype(&cuMemSetAccess) mem_set_access = nullptr;

  // UNIMPLEMENTED: no driver, one that is too old for this library, or no GPU.
  static absl::StatusOr<CudaDriver> Find();
};

// The runtime's name for a driver's error; their numbers agree.
inline cudaError_t ToRuntimeError(CUresult result) {
  return static_cast<cudaError_t>(result);
}

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_CUDA_DRIVER_H_
