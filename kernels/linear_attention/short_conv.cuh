// The arithmetic of short_conv on CUDA beside its sums (fmaf, the oldest tap
// first, from the bias on), for kernels that convolve for themselves.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_SHORT_CONV_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_SHORT_CONV_CUH_

#include "kernels/linear_attention/short_conv.h"

namespace inlay {

// Divided within two units in the last place, without the branches of exact
// division, which would follow one another.
__device__ inline float Silu(float x) {
  return __fdividef(x, __fadd_rn(1.0f, expf(-x)));
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_SHORT_CONV_CUH_
