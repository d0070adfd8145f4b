#include "memory/device/cuda_status.h"
#include "memory/device/cuda_stream.h"

namespace inlay {

absl::Status CudaStream::Synchronize() {
  return CudaStatus(cudaStreamSynchronize(handle_), "waiting for a stream");
}

}  // namespace inlay
