// How many clusters of blocks of an SM each the device runs at once. A cluster
// lies in a group of SMs, of which some are cut off, others on every card: only
// the driver knows.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>

#include "kernels/gemm/quantised/quantised_cuda.h"
#include "kernels/gemm/quantised/wide_shape.h"

namespace inlay {
namespace {

constexpr int kThreads = WideBlock<kWideTiles>::kThreads;
constexpr size_t kShared = 200 << 10;  // no two blocks on an SM
constexpr int kMostDevices = 64;       // that are remembered

__global__ void __launch_bounds__(kThreads, 1) Occupy() {}

// 0 where the driver does not say.
int Ask(int cluster) {
  if (cudaFuncSetAttribute(Occupy, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kShared)) != cudaSuccess) {
    return 0;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kShared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  return cudaOccupancyMaxActiveClusters(&count, Occupy, &config) == cudaSuccess
             ? count
             : 0;
}

}  // namespace

int64_t WideClustersAtOnce(int cluster, int num_sms) {
  static std::atomic<int> known[kMostDevices][kMostWideSplits + 1];
  int device = 0;
  if (cluster < 2) return num_sms;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kMostDevices) {
    return ClustersAtOnce(cluster, num_sms);
  }
  int count = known[device][cluster].load(std::memory_order_relaxed);
  if (count == 0) {
    count = Ask(cluster);
    if (count == 0) return ClustersAtOnce(cluster, num_sms);
    known[device][cluster].store(count, std::memory_order_relaxed);
  }
  // Plans for other devices than this: no more than they have.
  return std::max(1, std::min(count, num_sms / cluster));
}

}  // namespace inlay
