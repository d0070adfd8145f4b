#include "kernels/quant/iq1_m/iq1_m.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/iq1_block.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

using Super = Iq1Block<16, 8>;

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<IQ1_MBlock>(src, b);
    Super super;
    unsigned scale = 0;
    for (int k = 0; k < 4; ++k) {
      scale |= static_cast<unsigned>(block.scales[k]) >> 12 << 4 * k;
      for (int i = 0; i < 4; ++i) {
        super.scales[4 * k + i] = block.scales[k] >> 3 * i & 7;
      }
    }
    super.scale = static_cast<uint16_t>(scale);
    uint8_t high[32];
    UnpackBits<4, 1, 32>(block.high, high);
    for (int g = 0; g < 32; ++g) {
      super.indices[g] =
          static_cast<uint16_t>(block.low[g] | (high[g] & 7) << 8);
      super.down[g] = high[g] >> 3;
    }
    super.Decode(dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    IQ1_MBlock block;
    Super super;
    super.Encode(src);
    for (int k = 0; k < 4; ++k) {
      unsigned word = (super.scale >> 4 * k & 15u) << 12;
      for (int i = 0; i < 4; ++i) {
        word |= static_cast<unsigned>(super.scales[4 * k + i]) << 3 * i;
      }
      block.scales[k] = static_cast<uint16_t>(word);
    }
    uint8_t high[32];
    for (int g = 0; g < 32; ++g) {
      block.low[g] = static_cast<uint8_t>(super.indices[g]);
      high[g] =
          static_cast<uint8_t>(super.indices[g] >> 8 | super.down[g] << 3);
    }
    PackBits<4, 1, 32>(high, block.high);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kIQ1_MCodec;
const BlockCodec kIQ1_MCodec = {DType::kIQ1_M, Decode, Encode};

}  // namespace inlay
