#include "kernels/quant/iq1_s/iq1_s.h"

#include "kernels/quant/block.h"
#include "kernels/quant/iq1_block.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

using Super = Iq1Block<32, 32>;

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<IQ1_SBlock>(src, b);
    Super super;
    super.scale = block.scale;
    for (int j = 0; j < 8; ++j) {
      const unsigned high = block.high[j];
      super.scales[j] = high >> 12 & 7;
      super.down[j] = static_cast<uint8_t>(high >> 15);
      for (int g = 0; g < 4; ++g) {
        super.indices[4 * j + g] = static_cast<uint16_t>(
            block.low[4 * j + g] | (high >> 3 * g & 7) << 8);
      }
    }
    super.Decode(dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    IQ1_SBlock block;
    Super super;
    super.Encode(src);
    block.scale = super.scale;
    for (int j = 0; j < 8; ++j) {
      unsigned high = super.scales[j] << 12 | super.down[j] << 15;
      for (int g = 0; g < 4; ++g) {
        const unsigned index = super.indices[4 * j + g];
        block.low[4 * j + g] = static_cast<uint8_t>(index);
        high |= index >> 8 << 3 * g;
      }
      block.high[j] = static_cast<uint16_t>(high);
    }
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kIQ1_SCodec;
const BlockCodec kIQ1_SCodec = {DType::kIQ1_S, Decode, Encode};

}  // namespace inlay
