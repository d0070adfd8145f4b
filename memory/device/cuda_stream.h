// CudaStream: what CUDA kernels need to know of the stream they are launched
// into. Every Stream of a CUDA device is one.
#ifndef INLAY_MEMORY_DEVICE_CUDA_STREAM_H_
#define INLAY_MEMORY_DEVICE_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include "memory/device/device.h"

namespace inlay {

// Thread-compatible.
class CudaStream : public Stream {
 public:
  // `handle` belongs to whoever derives from this.
  CudaStream(cudaStream_t handle, int num_sms)
      : handle_(handle), num_sms_(num_sms) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  absl::Status Synchronize() override;

  cudaStream_t handle() const { return handle_; }
  int num_sms() const { return num_sms_; }

  // The stream of a call into a CUDA row; `stream` must be one of a CUDA
  // device: rows are selected by device.
  static CudaStream& Of(Stream& stream) {
    return static_cast<CudaStream&>(stream);
  }

 private:
  cudaStream_t handle_;
  int num_sms_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_CUDA_STREAM_H_
