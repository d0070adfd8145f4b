// elementwise: y = y + x (residuals), y = y * factor, the logit softcap y = cap
// * tanh(y / cap), y cut off beyond +-limit, and sigmoids 1 / (1 + e^-y), in
// place.
#ifndef INLAY_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define INLAY_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

enum class Elementwise : uint8_t { kAdd, kScale, kSoftcap, kClamp, kSigmoid };

struct ElementwiseDesc {
  Elementwise function = Elementwise::kAdd;
  int64_t width = 0;
  DType activation = DType::kF32;
};

struct ElementwiseParams {
  TensorView y;  // [rows, width], changed in place
  TensorView x;  // kAdd: [rows, width]; otherwise unused
  // kScale: the factor; kSoftcap: the cap (> 0); kClamp: the limit (> 0)
  float value = 0.0f;
};

using ElementwiseRow = KernelRow<ElementwiseDesc, ElementwiseParams>;
absl::Span<const ElementwiseRow> ElementwiseTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
