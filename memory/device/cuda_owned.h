// The streams, events and graphs that a CUDA device makes: they own their
// handles, find their context and report its errors.
#ifndef INLAY_MEMORY_DEVICE_CUDA_OWNED_H_
#define INLAY_MEMORY_DEVICE_CUDA_OWNED_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "memory/device/cuda_context.h"
#include "memory/device/cuda_stream.h"
#include "memory/device/memory_account.h"

namespace inlay {

class OwnedCudaEvent final : public CudaEvent {
 public:
  OwnedCudaEvent(CudaContext* context, cudaEvent_t handle)
      : CudaEvent(handle), context_(context) {}
  ~OwnedCudaEvent() override;
  absl::Status Synchronize() override;

 private:
  CudaContext* context_;
};

// What its kernels take of the device's memory is in the account: as measured
// when it was made, what other processes took of it meanwhile no further than a
// bound by its launches.
class CudaGraph final : public Graph {
 public:
  CudaGraph(CudaContext* context, MemoryAccount* account,
            cudaGraphExec_t handle, size_t bytes)
      : context_(context), account_(account), handle_(handle), bytes_(bytes) {}
  ~CudaGraph() override;
  cudaGraphExec_t handle() const { return handle_; }

 private:
  CudaContext* context_;
  MemoryAccount* account_;
  cudaGraphExec_t handle_;
  size_t bytes_;
};

class OwnedCudaStream final : public CudaStream {
 public:
  OwnedCudaStream(CudaContext* context, MemoryAccount* account,
                  cudaStream_t handle, const DeviceInfo& info)
      : CudaStream(handle, info.num_sms, info.sm),
        context_(context),
        account_(account) {}
  ~OwnedCudaStream() override;
  absl::Status Synchronize() override;
  absl::Status Record(StreamEvent& event) override;
  absl::Status Wait(StreamEvent& event) override;
  absl::Status BeginGraph() override;
  absl::StatusOr<std::unique_ptr<Graph>> EndGraph() override;
  absl::Status Launch(Graph& graph) override;

 private:
  absl::StatusOr<std::unique_ptr<Graph>> Instantiate(cudaGraph_t graph);

  CudaContext* context_;
  MemoryAccount* account_;
};

}  // namespace inlay

#endif  // INLAY_MEMORY_DEVICE_CUDA_OWNED_H_
