// q5_k: 256 elements in 8 sub-blocks of 32 with scales and minima of 6 bits.
// value = (scale * s[j]) * code - (min * m[j]) in sub-block j.
//
//   byte 0     f16 scale
//   byte 2     f16 min
//   byte 4     s and m in 12 bytes: kernels/quant/k_scales.h
//   byte 16+i  (i < 32) bit r: bit 4 of the code of element 32 r + i
//   byte 48+i  bits 0..3 of codes; byte 32 c + i (i < 32) of these 128 has
//              elements 64 c + i (low nibble) and 64 c + 32 + i (high nibble)
//
// Source: ggml's GGML_TYPE_Q5_K (ggml-common.h, dequantize_row_q5_K).
#ifndef INLAY_KERNELS_QUANT_Q5_K_Q5_K_H_
#define INLAY_KERNELS_QUANT_Q5_K_Q5_K_H_

#include <cstdint>

namespace inlay {

struct Q5_KBlock {
  uint16_t scale;  // f16
  uint16_t min;    // f16
  uint8_t sub[12];
  uint8_t high[32];
  uint8_t low[128];
};
static_assert(sizeof(Q5_KBlock) == 176);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q5_K_Q5_K_H_
