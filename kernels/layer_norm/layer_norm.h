// layer_norm: y = (x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias, row
// by row (Ba et al., arXiv:1607.06450).
#ifndef INLAY_KERNELS_LAYER_NORM_LAYER_NORM_H_
#define INLAY_KERNELS_LAYER_NORM_LAYER_NORM_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct LayerNormDesc {
  int64_t width = 0;
  DType activation = DType::kF32;  // of x
  DType output = DType::kF32;      // of y; y may be x only where they agree
};

struct LayerNormParams {
  TensorView x;                   // [rows, width], rows may be strided
  const float* weight = nullptr;  // [width], or null for 1
  const float* bias = nullptr;    // [width], or null for 0
  float epsilon = 0.0f;
  TensorView y;  // the same shape; may be x itself
};

using LayerNormRow = KernelRow<LayerNormDesc, LayerNormParams>;
absl::Span<const LayerNormRow> LayerNormTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_LAYER_NORM_LAYER_NORM_H_
