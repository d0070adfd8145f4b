// The activation functions as kernels compute them, float32.
#ifndef INLAY_KERNELS_ACTIVATION_ACTIVATION_CUH_
#define INLAY_KERNELS_ACTIVATION_ACTIVATION_CUH_

#include "kernels/activation/activation.h"

namespace inlay {

// x / (1 + e^-y), for y of x's sign. Within three units of float32; 0 where the
// quotient is below 2^-119. A division to the last bit takes as long as all the
// rest. The bits are __fdividef's, which would look for sums below 2^-126.
__device__ inline float DivideBySigmoidSum(float x, float y) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + expf(-y)));
  return x * inverse;
}

template <Activation kFunction>
__device__ float ApplyActivation(float x) {
  if constexpr (kFunction == Activation::kSilu) {
    return DivideBySigmoidSum(x, x);
  } else if constexpr (kFunction == Activation::kGelu) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  } else if constexpr (kFunction == Activation::kGeluTanh) {
    // sqrt(2 / pi) and 0.044715: Hendrycks and Gimpel, arXiv:1606.08415.
    const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
  } else {
    const float y = x < 0.0f ? 0.0f : x;  // NaN stays
    return kFunction == Activation::kRelu ? y : y * y;
  }
}

// The same where the function is known at run time only.
__device__ inline float ApplyActivation(Activation function, float x) {
  switch (function) {
    case Activation::kGelu:
      return ApplyActivation<Activation::kGelu>(x);
    case Activation::kGeluTanh:
      return ApplyActivation<Activation::kGeluTanh>(x);
    case Activation::kRelu:
      return ApplyActivation<Activation::kRelu>(x);
    case Activation::kReluSquared:
      return ApplyActivation<Activation::kReluSquared>(x);
    default:
      return ApplyActivation<Activation::kSilu>(x);
  }
}

// HasLimit(), for device code.
template <Activation kFunction>
inline constexpr bool kHasLimit = kFunction == Activation::kClampedSilu ||
                                  kFunction == Activation::kLimitedSilu ||
                                  kFunction == Activation::kCappedSilu;

// Gated ones of two arguments. NaN stays.
template <Activation kFunction>
__device__ float ClampedSilu(float limit, float gate, float up) {
  up = up > limit ? limit : up;
  up = up < -limit ? -limit : up;
  if constexpr (kFunction == Activation::kCappedSilu) {
    const float value = DivideBySigmoidSum(gate, gate);
    return (value > limit ? limit : value) * up;
  }
  gate = gate > limit ? limit : gate;
  if constexpr (kFunction == Activation::kLimitedSilu) {
    return DivideBySigmoidSum(gate, gate) * up;
  }
  return DivideBySigmoidSum(gate, kClampedSiluSlope * gate) * (up + 1.0f);
}

// v = f(v) * up.
template <Activation kFunction, int kCount>
__device__ void ApplyGated(float limit, float (&v)[kCount],
                           const float (&up)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kHasLimit<kFunction>) {
      v[i] = ClampedSilu<kFunction>(limit, v[i], up[i]);
    } else {
      v[i] = ApplyActivation<kFunction>(v[i]) * up[i];
    }
  }
}

// The same where the function is known at run time only.
template <int kCount>
__device__ void ApplyGated(Activation function, float limit, float (&v)[kCount],
                           const float (&up)[kCount]) {
  switch (function) {
    case Activation::kGelu:
      return ApplyGated<Activation::kGelu>(limit, v, up);
    case Activation::kGeluTanh:
      return ApplyGated<Activation::kGeluTanh>(limit, v, up);
    case Activation::kRelu:
      return ApplyGated<Activation::kRelu>(limit, v, up);
    case Activation::kReluSquared:
      return ApplyGated<Activation::kReluSquared>(limit, v, up);
    case Activation::kClampedSilu:
      return ApplyGated<Activation::kClampedSilu>(limit, v, up);
    case Activation::kLimitedSilu:
      return ApplyGated<Activation::kLimitedSilu>(limit, v, up);
    case Activation::kCappedSilu:
      return ApplyGated<Activation::kCappedSilu>(limit, v, up);
    default:
      return ApplyGated<Activation::kSilu>(limit, v, up);
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_ACTIVATION_ACTIVATION_CUH_
