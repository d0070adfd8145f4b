// iq3_s: 256 elements in 8 sub-blocks of 32 with scales of 4 bits.
// value = scale * (2 s[j] + 1) * magnitude * sign in sub-block j.
//
//   byte 0      f16 scale
//   byte 2+g    bits 0 .. 7 of the index into the grid, for elements 4 g .. + 3
//   byte 66+i   bit b: bit 8 of index 8 i + b
//   byte 74+i   bit b: the sign of element 8 i + b (1: negative)
//   byte 106+j  low nibble: s[2 j]; high nibble: s[2 j + 1]
//
// Source: ggml's GGML_TYPE_IQ3_S (ggml-common.h, dequantize_row_iq3_s).
// Grid: kernels/quant/iq_grids.h.
#ifndef INLAY_KERNELS_QUANT_IQ3_S_IQ3_S_H_
#define INLAY_KERNELS_QUANT_IQ3_S_IQ3_S_H_

#include <cstdint>

namespace inlay {

struct IQ3_SBlock {
  uint16_t scale;  // f16
  uint8_t low[64];
  uint8_t high[8];
  uint8_t signs[32];
  uint8_t scales[4];
};
static_assert(sizeof(IQ3_SBlock) == 110);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ3_S_IQ3_S_H_
