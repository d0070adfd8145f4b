// q2_k: 256 elements in 16 sub-blocks of 16 with scales and minima of 4 bits.
// value = (scale * s[j]) * code - (min * m[j]) in sub-block j.
//
//   byte 0+j   low nibble: s[j]; high nibble: m[j]
//   byte 16+i  codes of 2 bits; byte 32 h + i (i < 32) of these 64 has elements
//              128 h + i, + 32, + 64, + 96 from the low bits up
//   byte 80    f16 scale
//   byte 82    f16 min
//
// Source: ggml's GGML_TYPE_Q2_K (ggml-common.h, dequantize_row_q2_K).
#ifndef INLAY_KERNELS_QUANT_Q2_K_Q2_K_H_
#define INLAY_KERNELS_QUANT_Q2_K_Q2_K_H_

#include <cstdint>

namespace inlay {

struct Q2_KBlock {
  uint8_t sub[16];
  uint8_t codes[64];
  uint16_t scale;  // f16
  uint16_t min;    // f16
};
static_assert(sizeof(Q2_KBlock) == 84);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q2_K_Q2_K_H_
