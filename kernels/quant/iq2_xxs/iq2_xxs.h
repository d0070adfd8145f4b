// iq2_xxs: 256 elements in 8 sub-blocks of 32 with scales of 4 bits.
// value = scale * (2 s[j] + 1) / 8 * magnitude * sign in sub-block j.
//
//   byte 0     f16 scale
//   byte 2+8j  sub-block j:
//     byte i   (i < 4) index into the grid, for elements 8 i .. 8 i + 7
//     byte 4   uint32, little-endian: bits 7 i .. 7 i + 6 (i < 4) are the signs
//              of elements 8 i .. 8 i + 6 (1: negative; the 8th makes their
//              number even), bits 28 .. 31 are s[j]
//
// Source: ggml's GGML_TYPE_IQ2_XXS (ggml-common.h, dequantize_row_iq2_xxs).
// Grid: kernels/quant/iq_grids.h.
#ifndef INLAY_KERNELS_QUANT_IQ2_XXS_IQ2_XXS_H_
#define INLAY_KERNELS_QUANT_IQ2_XXS_IQ2_XXS_H_

#include <cstdint>

namespace inlay {

struct IQ2_XXSBlock {
  uint16_t scale;  // f16
  struct Sub {
    uint8_t indices[4];
    uint8_t signs_and_scale[4];
  } subs[8];
};
static_assert(sizeof(IQ2_XXSBlock) == 66);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ2_XXS_IQ2_XXS_H_
