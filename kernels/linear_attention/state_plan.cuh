// States of one layer as kernels see them.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_STATE_PLAN_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_STATE_PLAN_CUH_

#include "kernels/linear_attention/state_plan.h"
#include "memory/kv/kv_layout.h"

namespace inlay {

// On devices a cache is one range.
struct CudaStates {
  explicit CudaStates(const KvStateView& view)
      : first(view.base.base + view.offset_bytes),
        stride(view.block_stride_bytes) {}
  __device__ float* Of(int32_t block) const {
    return reinterpret_cast<float*>(first + block * stride);
  }

  std::byte* first;
  int64_t stride;
};

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_STATE_PLAN_CUH_
