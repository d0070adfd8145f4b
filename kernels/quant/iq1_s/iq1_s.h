// iq1_s: 256 elements in 8 sub-blocks of 32 with scales of 3 bits and a shift.
// value = scale * (2 s[j] + 1) * (level + shift[j]) in sub-block j.
//
//   byte 0      f16 scale
//   byte 2+g    bits 0 .. 7 of the index into the grid, for elements 8 g .. + 7
//   byte 34+2j  uint16, little-endian, of sub-block j: bits 3 i .. 3 i + 2
//               (i < 4) are bits 8 .. 10 of its index i, bits 12 .. 14 are
//               s[j], bit 15 is set where the shift is -1/8 and not 1/8
//
// Source: ggml's GGML_TYPE_IQ1_S (ggml-common.h, dequantize_row_iq1_s).
// Grid: kernels/quant/iq_grids.h.
#ifndef INLAY_KERNELS_QUANT_IQ1_S_IQ1_S_H_
#define INLAY_KERNELS_QUANT_IQ1_S_IQ1_S_H_

#include <cstdint>

namespace inlay {

struct IQ1_SBlock {
  uint16_t scale;  // f16
  uint8_t low[32];
  uint16_t high[8];
};
static_assert(sizeof(IQ1_SBlock) == 50);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ1_S_IQ1_S_H_
