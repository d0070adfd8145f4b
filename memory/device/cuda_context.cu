#include "absl/memory/memory.h"
#include "memory/device/cuda_context.h"
#include "memory/device/cuda_status.h"
#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay {

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Create(int ordinal) {
  INLAY_ASSIGN_OR_RETURN(const CudaDriver driver, CudaDriver::Find());
  int count = 0;
  INLAY_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceCount(&count), "counting GPUs"));
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(FormattedString(
        "cuda: device is %d, allowed: 0 to %d", ordinal, count - 1));
  }
  auto context = absl::WrapUnique(new CudaContext(ordinal, driver));
  INLAY_RETURN_IF_ERROR(
      context->Check(driver.primary_ctx_retain(&context->context_, ordinal),
                     "opening the GPU's context"));
  return context;
}

CudaContext::~CudaContext() {
  if (context_ != nullptr) driver_.primary_ctx_release(ordinal_);
}

absl::Status CudaContext::status() const {
  if (!lost_.load(std::memory_order_acquire)) return absl::OkStatus();
  MutexLock lock(&mu_);
  return why_;
}

absl::Status CudaContext::Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The runtime would tell the next launch of this thread about it.
  cudaGetLastError();
  absl::Status status = CudaStatus(error, what);
  if (!CudaErrorStays(error)) return status;
  MutexLock lock(&mu_);
  if (why_.ok()) why_ = status;
  lost_.store(true, std::memory_order_release);
  return status;
}

CUcontext CudaContext::Enter() {
  CUcontext previous = nullptr;
  driver_.ctx_get_current(&previous);
  if (previous != context_) driver_.ctx_set_current(context_);
  return previous;
}

void CudaContext::Leave(CUcontext previous) {
  if (previous != context_) driver_.ctx_set_current(previous);
}

}  // namespace inlay
