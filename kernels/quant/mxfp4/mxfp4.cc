#include "kernels/quant/mxfp4/mxfp4.h"

#include <algorithm>
#include <cmath>

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fp4.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 32) {
    const auto block = LoadBlock<MXFP4Block>(src, b);
    const float half = HalfE8M0(block.scale);
    uint8_t codes[32];
    UnpackBits<4, 16, 32>(block.codes, codes);
    for (int i = 0; i < 32; ++i) {
      dst[i] = half * static_cast<float>(kE2M1Doubled[codes[i]]);
    }
  }
}

// Rounds 32 values to `codes`; the squared error.
float Round(const float* src, int scale, uint8_t* codes) {
  const float half = HalfE8M0(static_cast<uint8_t>(scale));
  const float inverse = 0.5f / half;
  float error = 0.0f;
  for (int i = 0; i < 32; ++i) {
    codes[i] = F32ToE2M1(src[i] * inverse);
    const float off =
        half * static_cast<float>(kE2M1Doubled[codes[i]]) - src[i];
    error += off * off;
  }
  return error;
}

// The largest value lies in [4, 8) scales, by the specification's rule, or, if
// that errs less, in [2, 4): beyond 6 the former cuts it off.
void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 32) {
    MXFP4Block block;
    const float extreme = Extreme(src, 32);
    const int exponent = std::isfinite(extreme) && extreme != 0.0f
                             ? std::ilogb(extreme) - 2 + 127
                             : 0;
    const int scale = std::clamp(exponent, 0, 253);
    uint8_t codes[32], other[32];
    const float error = Round(src, scale, codes);
    const bool larger = Round(src, scale + 1, other) < error;
    block.scale = static_cast<uint8_t>(larger ? scale + 1 : scale);
    PackBits<4, 16, 32>(larger ? other : codes, block.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kMXFP4Codec;
const BlockCodec kMXFP4Codec = {DType::kMXFP4, Decode, Encode};

}  // namespace inlay
