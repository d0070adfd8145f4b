#include "kernels/quant/nvfp4_f32/nvfp4_f32.h"

#include <algorithm>
#include <cfloat>

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fp4.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 64) {
    const auto block = LoadBlock<NVFP4F32Block>(src, b);
    uint8_t codes[64];
    UnpackBits<4, 8, 64>(block.of.codes, codes);
    for (int j = 0; j < 4; ++j) {
      const float half = block.factor * HalfUE4M3(block.of.scales[j]);
      for (int i = 16 * j; i < 16 * j + 16; ++i) {
        dst[i] = half * static_cast<float>(kE2M1Doubled[codes[i]]);
      }
    }
  }
}

// The largest value becomes 448 * 6, and that of each sub-block 6.
void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 64) {
    NVFP4F32Block block;
    uint8_t codes[64];
    block.factor = std::abs(Extreme(src, 64)) / (448.0f * 6.0f);
    const float inverse_factor = InverseScale(block.factor);
    for (int j = 0; j < 4; ++j) {
      const float extreme =
          std::min(std::abs(Extreme(src + 16 * j, 16)), FLT_MAX);
      block.of.scales[j] =
          F32ToF8E4M3(std::min(extreme * inverse_factor / 6.0f, 448.0f));
      const float inverse =
          InverseScale(2.0f * (block.factor * HalfUE4M3(block.of.scales[j])));
      for (int i = 16 * j; i < 16 * j + 16; ++i) {
        codes[i] = F32ToE2M1(src[i] * inverse);
      }
    }
    PackBits<4, 8, 64>(codes, block.of.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kNVFP4_F32Codec;
const BlockCodec kNVFP4_F32Codec = {DType::kNVFP4_F32, Decode, Encode};

}  // namespace inlay
