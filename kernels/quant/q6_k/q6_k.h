// q6_k: 256 elements in 16 sub-blocks of 16 with scales of 8 bits.
// value = (scale * s[j]) * (code - 32) in sub-block j.
//
//   byte 0+i    bits 0..3 of codes; byte 64 h + i (i < 64) of these 128 has
//               elements 128 h + i (low nibble) and 128 h + 64 + i (high)
//   byte 128+i  bits 4..5 of codes; byte 32 h + i (i < 32) of these 64 has
//               elements 128 h + i, + 32, + 64, + 96 from the low bits up
//   byte 192+j  int8 s[j]
//   byte 208    f16 scale
//
// Source: ggml's GGML_TYPE_Q6_K (ggml-common.h, dequantize_row_q6_K).
#ifndef INLAY_KERNELS_QUANT_Q6_K_Q6_K_H_
#define INLAY_KERNELS_QUANT_Q6_K_Q6_K_H_

#include <cstdint>

namespace inlay {

struct Q6_KBlock {
  uint8_t low[128];
  uint8_t high[64];
  int8_t sub[16];
  uint16_t scale;  // f16
};
static_assert(sizeof(Q6_KBlock) == 210);

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_Q6_K_Q6_K_H_
