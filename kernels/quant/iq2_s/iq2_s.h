// iq2_s: 256 elements in 16 sub-blocks of 16 with scales of 4 bits.
// value = scale * (2 s[j] + 1) / 8 * magnitude * sign in sub-block j.
//
//   byte 0     f16 scale
//   byte 2+g   bits 0 .. 7 of the index into the grid, for elements 8 g .. + 7
//   byte 34+g  bit i: the sign of element 8 g + i (1: negative)
//   byte 66+i  bits 8 .. 9 of the indices 4 i .. 4 i + 3 from the low bits up
//   byte 74+j  low nibble: s[2 j]; high nibble: s[2 j + 1]
//
// Source: ggml's GGML_TYPE_IQ2_S (ggml-common.h, dequantize_row_iq2_s).
// Grid: kernels/quant/iq_grids.h.
#ifndef INLAY_KERNELS_QUANT_IQ2_S_IQ2_S_H_
#define INLAY_KERNELS_QUANT_IQ2_S_IQ2_S_H_

#include <cstdint>

namespace inlay {

struct IQ2_SBlock {
  uint16_t scale;  // f16
  uint8_t low[32];
  uint8_t signs[32];
  uint8_t high[8];
  uint8_t scales[8];
};
static_assert(sizeof(IQ2_SBlock) == 82);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ2_S_IQ2_S_H_
