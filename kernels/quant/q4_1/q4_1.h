// q4_1: 32 elements, scale and minimum; value = scale * code + min.
//
//   byte 0    f16 scale
//   byte 2    f16 min
//   byte 4+i  low nibble: code of element i; high nibble: of element 16 + i
//
// Source: ggml's GGML_TYPE_Q4_1 (ggml-common.h, dequantize_row_q4_1).
#ifndef INLAY_KERNELS_QUANT_Q4_1_Q4_1_H_
#define INLAY_KERNELS_QUANT_Q4_1_Q4_1_H_

#include <cstdint>

namespace inlay {

struct Q4_1Block {
  uint16_t scale;  // f16
  uint16_t min;    // f16
  uint8_t codes[16];
};
static_assert(sizeof(Q4_1Block) == 20);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q4_1_Q4_1_H_
