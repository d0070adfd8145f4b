// iq4_xs: 256 elements in 8 sub-blocks of 32 with scales of 6 bits.
// value = (scale * (s[j] - 32)) * level[code] in sub-block j.
//
//   byte 0    f16 scale
//   byte 2    bits 4..5 of s[0..7], 2 bits each from the low bits up
//   byte 4    bits 0..3 of s[0..7], 4 bits each from the low bits up
//   byte 8+i  codes; byte 16 j + i (i < 16) of these 128 has elements 32 j + i
//             (low nibble) and 32 j + 16 + i (high nibble)
//
// Levels: kernels/quant/iq4.h.
// Source: ggml's GGML_TYPE_IQ4_XS (ggml-common.h, dequantize_row_iq4_xs).
#ifndef INLAY_KERNELS_QUANT_IQ4_XS_IQ4_XS_H_
#define INLAY_KERNELS_QUANT_IQ4_XS_IQ4_XS_H_

#include <cstdint>

namespace inlay {

struct IQ4_XSBlock {
  uint16_t scale;  // f16
  uint8_t sub_high[2];
  uint8_t sub_low[4];
  uint8_t codes[128];
};
static_assert(sizeof(IQ4_XSBlock) == 136);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_IQ4_XS_IQ4_XS_H_
