// rms_norm: y = x / sqrt(mean(x^2) + epsilon) * weight, row by row (Zhang and
// Sennrich, arXiv:1910.07467).
#ifndef INLAY_KERNELS_RMS_NORM_RMS_NORM_H_
#define INLAY_KERNELS_RMS_NORM_RMS_NORM_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct RmsNormDesc {
  int64_t width = 0;
  DType activation = DType::kF32;  // of x
  DType output = DType::kF32;      // of y; y may be x only where they agree
};

struct RmsNormParams {
  TensorView x;                   // [rows, width], rows may be strided
  const float* weight = nullptr;  // [width], or null for 1; zero-centred
                                  // weights have their 1 added at load time
  float epsilon = 0.0f;
  TensorView y;  // the same shape; may be x itself
};

using RmsNormRow = KernelRow<RmsNormDesc, RmsNormParams>;
absl::Span<const RmsNormRow> RmsNormTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_RMS_NORM_RMS_NORM_H_
