// What decode_delta (decode_delta_cuda.cu) is made of beside its recurrence: a
// lane's channels of the convolution, which wait in shared memory, the factor
// of a norm.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_PARTS_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_PARTS_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/linear_attention/decode_rows.cuh"
#include "kernels/linear_attention/short_conv.cuh"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay {
namespace {

struct Convolution {
  const float* taps;     // [kTaps][channels]
  const float* lengths;  // of the first channels, [q_and_k]
  CudaStates states;     // [kTaps - 1][channels]
  int64_t channels;
  int64_t q_and_k;
};

// 1 / sqrt(squares / width + epsilon), as RmsNormFactor has it to the bit.
template <int kWidth>
__device__ float NormFactor(float squares, float epsilon) {
  static_assert((kWidth & (kWidth - 1)) == 0, "1 / width is exact");
  const float mean = __fmul_rn(squares, 1.0f / kWidth);
  return __frcp_rn(__fsqrt_rn(__fadd_rn(mean, epsilon)));
}

// Halves are added until one is left.
template <int kCount>
__device__ float TreeSum(const float (&x)[kCount]) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    float half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      half[i] = __fadd_rn(x[i], x[i + kCount / 2]);
    }
    return TreeSum(half);
  }
}

// Copies 16 bytes to shared memory; the thread finds them there after
// AwaitCopies().
__device__ void CopyFour(const float* from, float* to) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ void AwaitCopies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// kVector channels of the convolution, for one lane, in shared memory.
struct alignas(16) Window {
  // Of the first channel and on; source -1: there were no tokens before.
  __device__ void Load(const Convolution& conv, int64_t channel,
                       int32_t source) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      CopyFour(conv.taps + j * conv.channels + channel, taps[j]);
    }
    if (channel < conv.q_and_k) CopyFour(conv.lengths + channel, lengths);
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
      if (source < 0) {
        const float zeros[kVector] = {};
        StoreFloats<kVector>(inputs[j], zeros);
      } else {
        CopyFour(conv.states.Of(source) + j * conv.channels + channel,
                 inputs[j]);
      }
    }
  }

  // Takes a token's inputs; y as the convolution's row would have it.
  template <typename T>
  __device__ void Next(const Raw<T, kVector>& x, float (&y)[kVector]) {
    float sum[kVector] = {};
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      float input[kVector], tap[kVector];
      LoadFloats<kVector>(taps[j], tap);
      if (j + 1 < kTaps) LoadFloats<kVector>(inputs[j], input);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (j + 1 == kTaps) input[i] = x[i];
        sum[i] = fmaf(input[i], tap[i], sum[i]);
      }
      if (j > 0) StoreFloats<kVector>(inputs[j - 1], input);
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) y[i] = RoundTo<T>(Silu(sum[i]));
  }

  __device__ void Store(const Convolution& conv, int64_t channel,
                        int32_t to) const {
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) {
      float input[kVector];
      LoadFloats<kVector>(inputs[j], input);
      StoreFloats<kVector>(conv.states.Of(to) + j * conv.channels + channel,
                           input);
    }
  }

  float inputs[kTaps - 1][kVector];  // of the tokens before, the oldest first
  float taps[kTaps][kVector];
  float lengths[kVector];  // of q and k
};

}  // namespace
}  // namespace inlay

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_PARTS_CUH_
