// CudaStream: what CUDA kernels need to know of the stream they are launched
// into. Every Stream of a CUDA device is one, every StreamEvent a CudaEvent.
#ifndef INLAY_MEMORY_DEVICE_CUDA_STREAM_H_
#define INLAY_MEMORY_DEVICE_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "memory/device/device.h"

namespace inlay {

class CudaEvent : public StreamEvent {
 public:
  // `handle` belongs to whoever derives from this.
  explicit CudaEvent(cudaEvent_t handle) : handle_(handle) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  absl::Status Synchronize() override;
  cudaEvent_t handle() const { return handle_; }

 private:
  cudaEvent_t handle_;
};

// Thread-compatible.
class CudaStream : public Stream {
 public:
  // What kernels keep with a stream: handles of libraries, choices made for
  // shapes.
  class Attachment {
   public:
    virtual ~Attachment() = default;
  };

  // `handle` belongs to whoever derives from this; `sm` is the device's compute
  // capability * 10.
  CudaStream(cudaStream_t handle, int num_sms, int sm)
      : handle_(handle), num_sms_(num_sms), sm_(sm) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  absl::Status Synchronize() override;
  absl::Status Record(StreamEvent& event) override;
  absl::Status Wait(StreamEvent& event) override;

  cudaStream_t handle() const { return handle_; }
  int num_sms() const { return num_sms_; }
  int sm() const { return sm_; }
  // Whether the last kernel was one of CudaGrid::waits_first
  // (kernels/cuda_launch.cuh). Who launches without LaunchCuda clears it.
  bool last_waited_first() const { return last_waited_first_; }
  void set_last_waited_first(bool waited) { last_waited_first_ = waited; }
  // Empty until a kernel fills it; destroyed with the stream, which must be
  // idle by then.
  std::unique_ptr<Attachment>& attachment() { return attachment_; }

  // The stream of a call into a CUDA row; `stream` must be one of a CUDA
  // device: rows are selected by device.
  static CudaStream& Of(Stream& stream) {
    return static_cast<CudaStream&>(stream);
  }

 private:
  cudaStream_t handle_;
  int num_sms_;
  int sm_;
  bool last_waited_first_ = false;
  std::unique_ptr<Attachment> attachment_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_CUDA_STREAM_H_
