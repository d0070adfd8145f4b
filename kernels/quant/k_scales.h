// The 6-bit scales and minima of q4_k and q5_k: 8 of each in 12 bytes.
//
//   byte j      (j < 4)  low 6 bits: scale j; high 2: bits 4..5 of scale 4 + j
//   byte 4 + j           low 6 bits: min j; high 2: bits 4..5 of min 4 + j
//   byte 8 + j           low 4 bits of scale 4 + j, then those of min 4 + j
//
// Source: ggml (ggml-quants.c, get_scale_min_k4).
#ifndef INLAY_KERNELS_QUANT_K_SCALES_H_
#define INLAY_KERNELS_QUANT_K_SCALES_H_

#include <cstdint>

namespace inlay {

inline void UnpackKScales(const uint8_t* packed, uint8_t* scales,
                          uint8_t* mins) {
  for (int j = 0; j < 4; ++j) {
    scales[j] = packed[j] & 63;
    mins[j] = packed[4 + j] & 63;
    scales[4 + j] =
        static_cast<uint8_t>((packed[8 + j] & 15) | packed[j] >> 6 << 4);
    mins[4 + j] =
        static_cast<uint8_t>(packed[8 + j] >> 4 | packed[4 + j] >> 6 << 4);
  }
}

inline void PackKScales(const uint8_t* scales, const uint8_t* mins,
                        uint8_t* packed) {
  for (int j = 0; j < 4; ++j) {
    packed[j] = static_cast<uint8_t>(scales[j] | scales[4 + j] >> 4 << 6);
    packed[4 + j] = static_cast<uint8_t>(mins[j] | mins[4 + j] >> 4 << 6);
    packed[8 + j] =
        static_cast<uint8_t>((scales[4 + j] & 15) | (mins[4 + j] & 15) << 4);
  }
}

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_K_SCALES_H_
