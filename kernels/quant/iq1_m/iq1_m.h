// iq1_m: 256 elements in 16 sub-blocks of 16 with scales of 3 bits, and a shift
// for every 8.
// value = scale * (2 s[j] + 1) * (level + shift[g]) in sub-block j, group g.
//
//   byte 0+g    bits 0 .. 7 of the index into the grid, for elements 8 g .. + 7
//   byte 32+i   low nibble of group 2 i, high nibble of group 2 i + 1: bits
//               8 .. 10 of the index; bit 3 is set where the shift is -1/8 and
//               not 1/8
//   byte 48+2k  uint16, little-endian (k < 4): bits 3 i .. 3 i + 2 (i < 4) are
//               s[4 k + i], bits 12 .. 15 are bits 4 k .. 4 k + 3 of the f16
//               scale
//
// Source: ggml's GGML_TYPE_IQ1_M (ggml-common.h, dequantize_row_iq1_m).
// Grid: kernels/quant/iq_grids.h.
#ifndef INLAY_KERNELS_QUANT_IQ1_M_IQ1_M_H_
#define INLAY_KERNELS_QUANT_IQ1_M_IQ1_M_H_

#include <cstdint>

namespace inlay {

struct IQ1_MBlock {
  uint8_t low[32];
  uint8_t high[16];
  uint16_t scales[4];
};
static_assert(sizeof(IQ1_MBlock) == 56);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ1_M_IQ1_M_H_
