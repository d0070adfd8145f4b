#include "kernels/quant/nvfp4/nvfp4.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fp4.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 64) {
    const auto block = LoadBlock<NVFP4Block>(src, b);
    uint8_t codes[64];
    UnpackBits<4, 8, 64>(block.codes, codes);
    for (int j = 0; j < 4; ++j) {
      const float half = HalfUE4M3(block.scales[j]);
      for (int i = 16 * j; i < 16 * j + 16; ++i) {
        dst[i] = half * static_cast<float>(kE2M1Doubled[codes[i]]);
      }
    }
  }
}

// The largest value becomes 6.
void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 64) {
    NVFP4Block block;
    uint8_t codes[64];
    for (int j = 0; j < 4; ++j) {
      const float extreme = std::abs(Extreme(src + 16 * j, 16));
      block.scales[j] = F32ToF8E4M3(extreme / 6.0f);
      const float inverse = InverseScale(2.0f * HalfUE4M3(block.scales[j]));
      for (int i = 16 * j; i < 16 * j + 16; ++i) {
        codes[i] = F32ToE2M1(src[i] * inverse);
      }
    }
    PackBits<4, 8, 64>(codes, block.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kNVFP4Codec;
const BlockCodec kNVFP4Codec = {DType::kNVFP4, Decode, Encode};

}  // namespace inlay
