// Launching kernels so that the start of one overlaps the end of the one before
// it (programmatic dependent launch, CUDA programming guide, "Programmatic
// Dependent Launch and Synchronization"). Knows no ops.
//
// Contract: a kernel launched with LaunchCuda calls WaitForPrevious() in every
// block before it reads what earlier work wrote and before it writes anything.
// Weights, and what the step found when it began (keys and values of earlier
// steps: a copy of the batch separates steps), may be read before.
// LetNextBegin() says nothing of results: who comes next waits for those all
// the same, so a kernel that leaves room on its SMs calls it first. A kernel
// that calls it after WaitForPrevious() (CudaGrid::waits_first) promises more:
// who comes next may read what was queued before this kernel without waiting,
// by loads that go past the first-level cache (CudaStream::last_waited_first).
#ifndef INLAY_KERNELS_CUDA_LAUNCH_CUH_
#define INLAY_KERNELS_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "memory/device/cuda_status.h"
#include "memory/device/cuda_stream.h"
#include "memory/status.h"

namespace inlay {

// Returns once all grids queued before are complete and their writes visible.
__device__ inline void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel's blocks may take what room this grid leaves once each of
// this grid's blocks has called this or ended.
__device__ inline void LetNextBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct CudaGrid {
  int64_t blocks = 0;  // 0: nothing is launched
  int threads = 0;
  size_t shared_bytes = 0;   // dynamic
  int cluster = 1;           // blocks; more than 1 from Hopper on
  bool waits_first = false;  // no block calls LetNextBegin() before it waited
};

// Lets `kernel` have that much shared memory. Kernels with and without it ask
// for the same division of an SM's memory, the most that can be shared: an SM
// divides it anew only when it is empty, so they could not overlap otherwise.
inline absl::Status AllowShared(const char* what, const void* kernel,
                                size_t bytes) {
  if (bytes > 0) {
    INLAY_RETURN_IF_ERROR(CudaStatus(
        cudaFuncSetAttribute(kernel,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        what));
  }
  return CudaStatus(cudaFuncSetAttribute(
                        kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                        cudaSharedmemCarveoutMaxShared),
                    what);
}

// `what` names the kernel in the error, as a phrase.
template <typename... Formal, typename... Actual>
absl::Status LaunchCuda(const char* what, CudaStream& stream,
                        const CudaGrid& grid, void (*kernel)(Formal...),
                        const Actual&... args) {
  if (grid.blocks == 0) return absl::OkStatus();
  stream.set_last_waited_first(grid.waits_first);
  INLAY_RETURN_IF_ERROR(AllowShared(what, reinterpret_cast<const void*>(kernel),
                                    grid.shared_bytes));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream.handle();
  config.attrs = attributes;
  config.numAttrs = stream.sm() < 90 ? 0 : grid.cluster > 1 ? 2 : 1;
  return CudaStatus(
      cudaLaunchKernelEx(&config, kernel, static_cast<Formal>(args)...), what);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_CUDA_LAUNCH_CUH_
