// The gate of gated_norm on CUDA, for kernels that end as it does: the same
// operations give the same bits. Nothing is left to the compiler to fuse.
#ifndef INLAY_KERNELS_GATED_NORM_GATED_NORM_CUH_
#define INLAY_KERNELS_GATED_NORM_GATED_NORM_CUH_

#include "kernels/gated_norm/gated_norm.h"

namespace inlay {

// What `desc.gate`, not kNone, makes of z.
__device__ inline float GateFactor(const GatedNormDesc& desc, float z) {
  const float scaled = __fmul_rn(desc.gate_scale, z);
  if (desc.gate == GateFunction::kSoftplus) {  // NaN stays
    return __fadd_rn(fmaxf(scaled, 0.0f), log1pf(expf(-fabsf(scaled))));
  }
  const float denominator = __fadd_rn(1.0f, expf(-scaled));
  return __fdiv_rn(desc.gate == GateFunction::kSilu ? scaled : 1.0f,
                   denominator);
}

}  // namespace inlay

#endif  // INLAY_KERNELS_GATED_NORM_GATED_NORM_CUH_
