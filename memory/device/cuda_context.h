// CudaContext: one GPU's context of this process, which the host and other
// engines share, and whether it still works. Every part of a CUDA device refers
// to its device's.
#ifndef INLAY_MEMORY_DEVICE_CUDA_CONTEXT_H_
#define INLAY_MEMORY_DEVICE_CUDA_CONTEXT_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/device/cuda_driver.h"
#include "memory/mutex.h"

namespace inlay {

// Thread-safe.
class CudaContext {
 public:
  // Errors: CreateCudaDevice's of ordinals, and the driver's.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(int ordinal);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  int ordinal() const { return ordinal_; }
  const CudaDriver& driver() const { return driver_; }

  // The first error that stays, if there was one.
  absl::Status status() const;
  // CudaStatus(), and remembers an error that stays.
  absl::Status Check(cudaError_t error, const char* what);
  absl::Status Check(CUresult result, const char* what) {
    return Check(ToRuntimeError(result), what);
  }

  // While it lives, the thread's CUDA calls go to this context; what the host
  // had there comes back.
  class Scope {
   public:
    explicit Scope(CudaContext& context)
        : context_(context), previous_(context.Enter()) {}
    ~Scope() { context_.Leave(previous_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CudaContext& context_;
    CUcontext previous_;
  };

  CUcontext Enter();
  void Leave(CUcontext previous);

 private:
  CudaContext(int ordinal, const CudaDriver& driver)
      : ordinal_(ordinal), driver_(driver) {}

  const int ordinal_;
  const CudaDriver driver_;
  CUcontext context_ = nullptr;  // the primary one, retained
  std::atomic<bool> lost_{false};
  mutable Mutex mu_;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_CUDA_CONTEXT_H_
