#include "kernels/quant/iq4_nl/iq4_nl.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fit.h"
#include "kernels/quant/iq4.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 32) {
    const auto block = LoadBlock<IQ4_NLBlock>(src, b);
    const float scale = F16ToF32(block.scale);
    uint8_t codes[32];
    UnpackBits<4, 16, 32>(block.codes, codes);
    for (int i = 0; i < 32; ++i) {
      dst[i] = scale * static_cast<float>(kIq4Levels[codes[i]]);
    }
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 32) {
    IQ4_NLBlock block;
    block.scale =
        F32ToF16(FitScale(src, 32, kIq4First, kIq4Step, NearestIq4Level));
    const float inverse = InverseScale(F16ToF32(block.scale));
    uint8_t codes[32];
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<uint8_t>(Iq4Code(src[i] * inverse));
    }
    PackBits<4, 16, 32>(codes, block.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kIQ4_NLCodec;
const BlockCodec kIQ4_NLCodec = {DType::kIQ4_NL, Decode, Encode};

}  // namespace inlay
