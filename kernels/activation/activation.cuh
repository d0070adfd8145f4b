// The activation functions as kernels compute them, float32.
#ifndef INLAY_KERNELS_ACTIVATION_ACTIVATION_CUH_
#define INLAY_KERNELS_ACTIVATION_ACTIVATION_CUH_

#include "kernels/activation/activation.h"

namespace inlay {

template <Activation kFunction>
__device__ float ApplyActivation(float x) {
  if constexpr (kFunction == Activation::kSilu) {
    return x / (1.0f + expf(-x));
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

}  // namespace inlay

#endif  // INLAY_KERNELS_ACTIVATION_ACTIVATION_CUH_
