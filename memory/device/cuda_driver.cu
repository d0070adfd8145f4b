#include "memory/device/cuda_driver.h"
#include "memory/device/cuda_status.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {
namespace {

// The interfaces as they are since CUDA 12.0, which every driver new enough for
// this runtime has.
constexpr unsigned kInterfaceVersion = 12000;

template <typename Function>
absl::Status FindFunction(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      name, &found, kInterfaceVersion, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess &&
      found != nullptr) {
    *function = reinterpret_cast<Function>(found);
    return absl::OkStatus();
  }
  return absl::UnimplementedError(FormattedString(
      "cuda: the driver has no %s: install a newer one, or use the CPU", name));
}

absl::Status CheckDriver() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    return absl::UnimplementedError(
        "cuda: no NVIDIA driver is installed (libcuda.so.1 was not found): "
        "install one, or use the CPU");
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();  // of the runtime's own, per thread
  if (error == cudaErrorInsufficientDriver) {
    return absl::UnimplementedError(FormattedString(
        "cuda: the NVIDIA driver is for CUDA %d.%d, needed: %d.0 or newer; "
        "install a newer one, or use the CPU",
        version / 1000, version % 1000 / 10, CUDART_VERSION / 1000));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return absl::UnimplementedError(
        "cuda: the NVIDIA driver finds no GPU (see nvidia-smi and "
        "CUDA_VISIBLE_DEVICES); use the CPU");
  }
  if (error != cudaSuccess) {
    return absl::UnimplementedError(FormattedString(
        "cuda: the NVIDIA driver does not start: %s (%s); use the CPU",
        cudaGetErrorString(error), cudaGetErrorName(error)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaDriver> CudaDriver::Find() {
  INLAY_RETURN_IF_ERROR(CheckDriver());
  CudaDriver driver;
#define INLAY_FIND(member, name) \
  INLAY_RETURN_IF_ERROR(FindFunction(name, &driver.member))
  INLAY_FIND(ctx_get_current, "cuCtxGetCurrent");
  INLAY_FIND(ctx_set_current, "cuCtxSetCurrent");
  INLAY_FIND(primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  INLAY_FIND(primary_ctx_release, "cuDevicePrimaryCtxRelease");
  INLAY_FIND(mem_granularity, "cuMemGetAllocationGranularity");
  INLAY_FIND(mem_address_reserve, "cuMemAddressReserve");
  INLAY_FIND(mem_address_free, "cuMemAddressFree");
  INLAY_FIND(mem_create, "cuMemCreate");
  INLAY_FIND(mem_release, "cuMemRelease");
  INLAY_FIND(mem_map, "cuMemMap");
  INLAY_FIND(mem_unmap, "cuMemUnmap");
  INLAY_FIND(mem_set_access, "cuMemSetAccess");
#undef INLAY_FIND
  return driver;
}

}  // namespace inlay
