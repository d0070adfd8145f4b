// bnb_fp4: bitsandbytes' 4-bit float, 64 elements a scale: the layout is in
// kernels/quant/level_block.h. A sign, two bits of exponent, one of mantissa,
// as e2m1 (fp4.h) but for codes in another order and the least level, 1/192 of
// the largest instead of 1/12.
//
// Source: bitsandbytes (functional.py, get_4bit_type), which stores them as
// "quant_map".
#ifndef INLAY_KERNELS_QUANT_BNB_FP4_BNB_FP4_H_
#define INLAY_KERNELS_QUANT_BNB_FP4_BNB_FP4_H_

#include "kernels/quant/level_block.h"

namespace inlay {

using BNB_FP4Block = LevelBlock;

// 192 times the levels.
inline constexpr int kBnbFp4Unit = 192;
inline constexpr int16_t kBnbFp4Whole[16] = {
    0, 1, 128, 192, 64, 96, 32, 48, 0, -1, -128, -192, -64, -96, -32, -48};

inline constexpr BlockLevels kBnbFp4Levels = {
    0.0f,  1.0f / 192,  2.0f / 3,  1.0f,  1.0f / 3,  0.5f,  1.0f / 6,  0.25f,
    -0.0f, -1.0f / 192, -2.0f / 3, -1.0f, -1.0f / 3, -0.5f, -1.0f / 6, -0.25f};

}  // namespace inlay

#endif  // INLAY_KERNELS_QUANT_BNB_FP4_BNB_FP4_H_
