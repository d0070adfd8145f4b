// q4_0: 32 elements, one scale; value = scale * (code - 8).
//
//   byte 0    f16 scale
//   byte 2+i  low nibble: code of element i; high nibble: of element 16 + i
//
// Source: ggml's GGML_TYPE_Q4_0 (ggml-common.h, dequantize_row_q4_0).
#ifndef INLAY_KERNELS_QUANT_Q4_0_Q4_0_H_
#define INLAY_KERNELS_QUANT_Q4_0_Q4_0_H_

#include <cstdint>

namespace inlay {

struct Q4_0Block {
  uint16_t scale;  // f16
  uint8_t codes[16];
};
static_assert(sizeof(Q4_0Block) == 18);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q4_0_Q4_0_H_
