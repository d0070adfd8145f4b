// iq3_xxs: 256 elements in 8 sub-blocks of 32 with scales of 4 bits.
// value = scale * (2 s[j] + 1) / 4 * magnitude * sign in sub-block j.
//
//   byte 0      f16 scale
//   byte 2+i    index into the grid, for elements 4 i .. 4 i + 3
//   byte 66+4j  uint32, little-endian, of sub-block j: bits 7 i .. 7 i + 6
//               (i < 4) are the signs of its elements 8 i .. 8 i + 6 (1:
//               negative; the 8th makes their number even), bits 28 .. 31 are
//               s[j]
//
// Source: ggml's GGML_TYPE_IQ3_XXS (ggml-common.h, dequantize_row_iq3_xxs).
// Grid: kernels/quant/iq_grids.h.
#ifndef INLAY_KERNELS_QUANT_IQ3_XXS_IQ3_XXS_H_
#define INLAY_KERNELS_QUANT_IQ3_XXS_IQ3_XXS_H_

#include <cstdint>

namespace inlay {

struct IQ3_XXSBlock {
  uint16_t scale;  // f16
  uint8_t indices[64];
  uint8_t signs_and_scales[8][4];
};
static_assert(sizeof(IQ3_XXSBlock) == 98);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ3_XXS_IQ3_XXS_H_
