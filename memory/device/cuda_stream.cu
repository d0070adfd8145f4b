#include "memory/device/cuda_status.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

absl::Status CudaEvent::Synchronize() {
  return CudaStatus(cudaEventSynchronize(handle_), "waiting for an event");
}

absl::Status CudaStream::Synchronize() {
  return CudaStatus(cudaStreamSynchronize(handle_), "waiting for a stream");
}

absl::Status CudaStream::Record(StreamEvent& event) {
  return CudaStatus(
      cudaEventRecord(static_cast<CudaEvent&>(event).handle(), handle_),
      "recording an event");
}

absl::Status CudaStream::Wait(StreamEvent& event) {
  return CudaStatus(
      cudaStreamWaitEvent(handle_, static_cast<CudaEvent&>(event).handle(), 0),
      "having a stream wait");
}

}  // namespace inlay
