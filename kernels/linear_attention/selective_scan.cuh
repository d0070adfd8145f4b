// What the kernels of selective_scan on CUDA share. The same operations give
// the same bits: nothing is left to the compiler to fuse.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_SELECTIVE_SCAN_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_SELECTIVE_SCAN_CUH_

#include "absl/status/status.h"
#include "kernels/linear_attention/linear_attention_rows.cuh"
#include "kernels/linear_attention/selective_scan.h"
#include "kernels/linear_attention/state_gates.cuh"
#include "kernels/linear_attention/state_plan.cuh"
#include "memory/device/cuda_stream.h"

namespace inlay {

// Parts that a channel's sum is made of, each of neighbouring elements in
// ascending order: (0 + 1) + (2 + 3).
inline constexpr int kScanGroups = 4;

struct ScanArgs {
  Rows x, step, b, c, z, y;
  const float* rates;
  const float* skip;
  CudaStates states;
  StatePlan plan;
  int64_t channels;
  int state_size;
  int slabs;  // blocks that the channels are cut into
  DType activation;
  bool aligned;     // four elements of x, step, z and y at a time
  bool bc_aligned;  // of b and c

  __device__ int64_t element_bytes() const {
    return activation == DType::kF32 ? 4 : 2;
  }
};

// 2^x; what would be subnormal is 0.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// For powers of 2.
__device__ inline float ScanRate(float rate) {
  return __fmul_rn(rate, 1.44269504f);
}

__device__ inline float ScanStep(float raw) {
  return GateStep(StateGatesDesc(), raw, 0.0f);
}

__device__ inline float ScanGate(float z) { return __fmul_rn(z, GateBeta(z)); }

// An element of the state takes a token; `sum` of what it gives.
__device__ inline void ScanElement(float step, float given, float rate, float b,
                                   float c, float& state, float& sum) {
  state = fmaf(Exp2(__fmul_rn(step, rate)), state, __fmul_rn(given, b));
  sum = fmaf(state, c, sum);
}

__device__ inline float ScanOutput(float sum, float skip, float x, float gate) {
  return __fmul_rn(fmaf(skip, x, sum), gate);
}

// Whether RunScanDecode serves a call (selective_scan_decode_cuda.cu).
bool ScanDecodes(const ScanArgs& args);
absl::Status RunScanDecode(ScanArgs args, CudaStream& stream);

}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_SELECTIVE_SCAN_CUH_
