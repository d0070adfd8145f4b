#include "kernels/quant/iq2_xs/iq2_xs.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/iq_block.h"
#include "kernels/quant/iq_grids.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

using Super = IqBlock<16, 8, 8>;

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<IQ2_XSBlock>(src, b);
    Super super;
    super.scale = block.scale;
    UnpackBits<4, 1, 16>(block.scales, super.scales);
    for (int g = 0; g < 32; ++g) {
      super.indices[g] = block.groups[g] & 511;
      super.signs[g] = SignsFrom7(block.groups[g] >> 9);
    }
    super.Decode(kIq2XsGrid, dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    IQ2_XSBlock block;
    Super super;
    super.Encode(kIq2XsGrid, src, /*even_signs=*/true);
    block.scale = super.scale;
    PackBits<4, 1, 16>(super.scales, block.scales);
    for (int g = 0; g < 32; ++g) {
      block.groups[g] =
          static_cast<uint16_t>(super.indices[g] | (super.signs[g] & 127) << 9);
    }
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kIQ2_XSCodec;
const BlockCodec kIQ2_XSCodec = {DType::kIQ2_XS, Decode, Encode};

}  // namespace inlay
