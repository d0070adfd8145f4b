// q5_0: 32 elements, one scale; value = scale * (code - 16).
//
//   byte 0    f16 scale
//   byte 2    uint32, little-endian: bit i is bit 4 of the code of element i
//   byte 6+i  bits 0..3 of codes; low nibble: of element i; high nibble: of
//             element 16 + i
//
// Source: ggml's GGML_TYPE_Q5_0 (ggml-common.h, dequantize_row_q5_0).
#ifndef INLAY_KERNELS_QUANT_Q5_0_Q5_0_H_
#define INLAY_KERNELS_QUANT_Q5_0_Q5_0_H_

#include <cstdint>

namespace inlay {

struct Q5_0Block {
  uint16_t scale;  // f16
  uint8_t high[4];
  uint8_t low[16];
};
static_assert(sizeof(Q5_0Block) == 22);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q5_0_Q5_0_H_
