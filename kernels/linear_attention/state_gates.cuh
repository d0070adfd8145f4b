// The arithmetic of state_gates on CUDA, for kernels that make gates for
// themselves: the same operations give the same bits. Nothing is left to the
// compiler to fuse.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_STATE_GATES_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_STATE_GATES_CUH_

#include "kernels/linear_attention/state_gates.h"

namespace inlay {

__device__ inline float GateStep(const StateGatesDesc& desc, float x,
                                 float bias) {
  const float raw = fmaf(desc.x_scale, x, bias);
  // Beyond 20 log(1 + e^x) is x in float32, and further e^x is infinite.
  float step = raw > 20.0f ? raw : log1pf(expf(raw));
  // NaN stays.
  step = step < desc.least ? desc.least : step;
  return step > desc.most ? desc.most : step;
}

__device__ inline float GateDecay(float a_log, float step) {
  return expf(__fmul_rn(-expf(a_log), step));
}

__device__ inline float GateBeta(float b) {
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-b)));
}

// Where desc.bound is below 0.
__device__ inline float BoundedDecay(const StateGatesDesc& desc, float a_log,
                                     float x, float bias) {
  const float raw = __fmul_rn(expf(a_log), fmaf(desc.x_scale, x, bias));
  return expf(__fmul_rn(desc.bound, GateBeta(raw)));
}

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_STATE_GATES_CUH_
