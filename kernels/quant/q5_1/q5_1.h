// q5_1: 32 elements, scale and minimum; value = scale * code + min.
//
//   byte 0    f16 scale
//   byte 2    f16 min
//   byte 4    uint32, little-endian: bit i is bit 4 of the code of element i
//   byte 8+i  bits 0..3 of codes; low nibble: of element i; high nibble: of
//             element 16 + i
//
// Source: ggml's GGML_TYPE_Q5_1 (ggml-common.h, dequantize_row_q5_1).
#ifndef INLAY_KERNELS_QUANT_Q5_1_Q5_1_H_
#define INLAY_KERNELS_QUANT_Q5_1_Q5_1_H_

#include <cstdint>

namespace inlay {

struct Q5_1Block {
  uint16_t scale;  // f16
  uint16_t min;    // f16
  uint8_t high[4];
  uint8_t low[16];
};
static_assert(sizeof(Q5_1Block) == 24);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q5_1_Q5_1_H_
