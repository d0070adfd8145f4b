// What decode_delta (decode_delta_cuda.cu) knows of its convolution: a lane's
// channels, which wait in shared memory, and rows as they lie in memory.
#ifndef INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_CONV_CUH_
#define INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_CONV_CUH_

#include "kernels/cuda_float.cuh"
#include "kernels/linear_attention/short_conv.cuh"
#include "kernels/linear_attention/state_plan.cuh"

namespace inlay {
namespace {

constexpr int kTaps = 4;
constexpr int kVector = 4;  // channels a lane of those that convolve

struct Convolution {
  const float* taps;     // [kTaps][channels]
  const float* lengths;  // of the first channels, [q_and_k]
  CudaStates states;     // [kTaps - 1][channels]
  int64_t channels;
  int64_t q_and_k;
};

template <typename T>
__device__ float RoundTo(float x) {
  return ToFloat(FromFloat<T>(x));
}

// Neighbours of a row, as they lie in memory until they are needed.
template <typename T, int kCount>
class Raw {
 public:
  __device__ void Load(const T* from) {
    bits_ = *reinterpret_cast<const Bits*>(from);
  }
  __device__ float operator[](int i) const {
    return ToFloat(reinterpret_cast<const T*>(&bits_)[i]);
  }

 private:
  static constexpr size_t kBytes = kCount * sizeof(T);
  using Bits =
      std::conditional_t<kBytes == 4, uint32_t,
                         std::conditional_t<kBytes == 8, uint2, uint4>>;
  Bits bits_;
};

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

#endif  // INLAY_KERNELS_LINEAR_ATTENTION_DECODE_DELTA_CONV_CUH_
