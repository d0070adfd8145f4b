// Matrices turned within groups of lanes. Knows no ops.
#ifndef INLAY_KERNELS_CUDA_TRANSPOSE_CUH_
#define INLAY_KERNELS_CUDA_TRANSPOSE_CUH_

#include <cstdint>

namespace inlay {

// x[j] of lane i (of four, which lie side by side) becomes x[i] of lane j.
__device__ inline void TransposeQuad(uint32_t (&x)[4], int lane) {
  const bool odd = lane % 2 != 0;
  const bool high = lane / 2 != 0;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const uint32_t give = odd ? x[j] : x[j + 1];
    const uint32_t got = __shfl_xor_sync(0xffffffffu, give, 1);
    (odd ? x[j] : x[j + 1]) = got;
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint32_t give = high ? x[j] : x[j + 2];
    const uint32_t got = __shfl_xor_sync(0xffffffffu, give, 2);
    (high ? x[j] : x[j + 2]) = got;
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_CUDA_TRANSPOSE_CUH_
