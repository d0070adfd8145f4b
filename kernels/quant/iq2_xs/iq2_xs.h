// iq2_xs: 256 elements in 16 sub-blocks of 16 with scales of 4 bits.
// value = scale * (2 s[j] + 1) / 8 * magnitude * sign in sub-block j.
//
//   byte 0     f16 scale
//   byte 2+2g  uint16, little-endian, of elements 8 g .. 8 g + 7: bits 0 .. 8
//              index into the grid; bits 9 .. 15 the signs of the first 7 (1:
//              negative; the 8th makes their number even)
//   byte 66+j  low nibble: s[2 j]; high nibble: s[2 j + 1]
//
// Source: ggml's GGML_TYPE_IQ2_XS (ggml-common.h, dequantize_row_iq2_xs).
// Grid: kernels/quant/iq_grids.h.
#ifndef INLAY_KERNELS_QUANT_IQ2_XS_IQ2_XS_H_
#define INLAY_KERNELS_QUANT_IQ2_XS_IQ2_XS_H_

#include <cstdint>

namespace inlay {

struct IQ2_XSBlock {
  uint16_t scale;  // f16
  uint16_t groups[32];
  uint8_t scales[8];
};
static_assert(sizeof(IQ2_XSBlock) == 74);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ2_XS_IQ2_XS_H_
