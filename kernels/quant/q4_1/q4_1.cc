#include "kernels/quant/q4_1/q4_1.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 32) {
    const auto block = LoadBlock<Q4_1Block>(src, b);
    const float scale = F16ToF32(block.scale);
    const float min = F16ToF32(block.min);
    uint8_t codes[32];
    UnpackBits<4, 16, 32>(block.codes, codes);
    for (int i = 0; i < 32; ++i) {
      dst[i] = scale * static_cast<float>(codes[i]) + min;
    }
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 32) {
    Q4_1Block block;
    const Range range = RangeOf(src, 32);
    block.scale = F32ToF16(range.most / 15.0f - range.least / 15.0f);
    block.min = F32ToF16(range.least);
    const float inverse = InverseScale(F16ToF32(block.scale));
    const float min = F16ToF32(block.min);
    uint8_t codes[32];
    for (int i = 0; i < 32; ++i) {
      codes[i] =
          static_cast<uint8_t>(RoundCode((src[i] - min) * inverse, 0, 15));
    }
    PackBits<4, 16, 32>(codes, block.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kQ4_1Codec;
const BlockCodec kQ4_1Codec = {DType::kQ4_1, Decode, Encode};

}  // namespace inlay
