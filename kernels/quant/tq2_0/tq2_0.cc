#include "kernels/quant/tq2_0/tq2_0.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<TQ2_0Block>(src, b);
    const float scale = F16ToF32(block.scale);
    uint8_t codes[256];
    UnpackBits<2, 32, 256>(block.codes, codes);
    for (int i = 0; i < 256; ++i) {
      dst[i] = scale * static_cast<float>(codes[i] - 1);
    }
  }
}

// The largest magnitude is the scale: what has three values keeps them.
void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    TQ2_0Block block;
    block.scale = F32ToF16(std::abs(Extreme(src, 256)));
    const float inverse = InverseScale(F16ToF32(block.scale));
    uint8_t codes[256];
    for (int i = 0; i < 256; ++i) {
      codes[i] = static_cast<uint8_t>(RoundCode(src[i] * inverse, -1, 1) + 1);
    }
    PackBits<2, 32, 256>(codes, block.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kTQ2_0Codec;
const BlockCodec kTQ2_0Codec = {DType::kTQ2_0, Decode, Encode};

}  // namespace inlay
