// head_scale: x[t][h][..] *= scale[h] * ln(1 + position of t) + bias[h], in
// place: what heads' queries are multiplied by where each has learned how its
// softmax is to sharpen with the number of keys (scalable softmax,
// arXiv:2501.19399; Mistral Large 4).
#ifndef INLAY_KERNELS_HEAD_SCALE_HEAD_SCALE_H_
#define INLAY_KERNELS_HEAD_SCALE_HEAD_SCALE_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct HeadScaleDesc {
  int num_heads = 0;
  int head_dim = 0;
  DType activation = DType::kF32;
};

struct HeadScaleParams {
  TensorView x;  // [tokens, num_heads * head_dim], rows may be strided
  const int32_t* positions = nullptr;  // [tokens], >= 0
  const float* scale = nullptr;        // [num_heads]
  const float* bias = nullptr;         // [num_heads]
};

using HeadScaleRow = KernelRow<HeadScaleDesc, HeadScaleParams>;

// Factors are float32; a token's result depends on its own row alone.
absl::Span<const HeadScaleRow> HeadScaleTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_HEAD_SCALE_HEAD_SCALE_H_
