// A pair's turn as kernels compute it: nothing is left to the compiler to fuse.
#ifndef INLAY_KERNELS_ROPE_ROPE_CUH_
#define INLAY_KERNELS_ROPE_ROPE_CUH_

namespace inlay {

__device__ inline void TurnPair(float& a, float& b, float cos, float sin) {
  const float before = a;
  a = fmaf(before, cos, -__fmul_rn(b, sin));
  b = fmaf(b, cos, __fmul_rn(before, sin));
}

}  // namespace inlay

#endif  // INLAY_KERNELS_ROPE_ROPE_CUH_
