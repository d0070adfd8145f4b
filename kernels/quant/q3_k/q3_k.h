// q3_k: 256 elements in 16 sub-blocks of 16 with scales of 6 bits.
// value = (scale * (s[j] - 32)) * (code - 4) in sub-block j.
//
//   byte 0+i    bit r: bit 2 of the code of element 32 r + i
//   byte 32+i   bits 0..1 of codes; byte 32 h + i (i < 32) of these 64 has
//               elements 128 h + i, + 32, + 64, + 96 from the low bits up
//   byte 96+j   (j < 8) low nibble: bits 0..3 of s[j]; high: of s[8 + j]
//   byte 104+j  (j < 4) bits 4..5 of s[j], s[4 + j], s[8 + j], s[12 + j] from
//               the low bits up
//   byte 108    f16 scale
//
// Source: ggml's GGML_TYPE_Q3_K (ggml-common.h, dequantize_row_q3_K).
#ifndef INLAY_KERNELS_QUANT_Q3_K_Q3_K_H_
#define INLAY_KERNELS_QUANT_Q3_K_Q3_K_H_

#include <cstdint>

namespace inlay {

struct Q3_KBlock {
  uint8_t high[32];
  uint8_t low[64];
  uint8_t sub_low[8];
  uint8_t sub_high[4];
  uint16_t scale;  // f16
};
static_assert(sizeof(Q3_KBlock) == 110);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q3_K_Q3_K_H_
