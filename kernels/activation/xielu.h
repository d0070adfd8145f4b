// xielu: the activation xIELU (Huang and Schlag, arXiv:2411.13010) with numbers
// of each layer (Apertus):
//
//   x > 0:      alpha_p x^2 + beta x
//   otherwise:  alpha_n (e^min(x, eps) - 1 - x) + beta x
//
// Apart from `activation`, whose functions have no numbers of their own, so
// that what is fused with those needs to know nothing of these.
#ifndef INLAY_KERNELS_ACTIVATION_XIELU_H_
#define INLAY_KERNELS_ACTIVATION_XIELU_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "memory/tensor.h"

namespace inlay {

struct XieluDesc {
  int64_t width = 0;
  DType activation = DType::kF32;
};

// As the formula has them: files store alpha_p and alpha_n - beta as what
// softplus makes them of.
struct XieluNumbers {
  float alpha_p = 0.0f;
  float alpha_n = 0.0f;
  float beta = 0.0f;
  float eps = 0.0f;
};

struct XieluParams {
  TensorView x;  // [rows, width], rows may be strided
  TensorView y;  // [rows, width]; may be x itself
  XieluNumbers numbers;
};

using XieluRow = KernelRow<XieluDesc, XieluParams>;
absl::Span<const XieluRow> XieluTable();

}  // namespace inlay

#endif  // INLAY_KERNELS_ACTIVATION_XIELU_H_
