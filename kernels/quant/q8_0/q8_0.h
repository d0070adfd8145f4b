// q8_0: 32 elements, one scale; value = scale * code.
//
//   byte 0    f16 scale
//   byte 2+i  int8 code of element i
//
// Source: ggml's GGML_TYPE_Q8_0 (ggml-common.h, dequantize_row_q8_0).
#ifndef INLAY_KERNELS_QUANT_Q8_0_Q8_0_H_
#define INLAY_KERNELS_QUANT_Q8_0_Q8_0_H_

#include <cstdint>

namespace inlay {

struct Q8_0Block {
  uint16_t scale;  // f16
  int8_t codes[32];
};
static_assert(sizeof(Q8_0Block) == 34);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q8_0_Q8_0_H_
