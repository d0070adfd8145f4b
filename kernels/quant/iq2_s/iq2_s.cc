#include "kernels/quant/iq2_s/iq2_s.h"

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
    const auto block = LoadBlock<IQ2_SBlock>(src, b);
    Super super;
    super.scale = block.scale;
    UnpackBits<4, 1, 16>(block.scales, super.scales);
    UnpackBits<8, 1, 32>(block.low, super.indices);
    UnpackBits<2, 1, 32, 8>(block.high, super.indices);
    std::memcpy(super.signs, block.signs, sizeof(block.signs));
    super.Decode(kIq2SGrid, dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    IQ2_SBlock block;
    Super super;
    super.Encode(kIq2SGrid, src, /*even_signs=*/false);
    block.scale = super.scale;
    PackBits<4, 1, 16>(super.scales, block.scales);
    PackBits<8, 1, 32>(super.indices, block.low);
    PackBits<2, 1, 32, 8>(super.indices, block.high);
    std::memcpy(block.signs, super.signs, sizeof(block.signs));
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kIQ2_SCodec;
const BlockCodec kIQ2_SCodec = {DType::kIQ2_S, Decode, Encode};

}  // namespace inlay
