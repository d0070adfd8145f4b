#include "kernels/quant/iq3_s/iq3_s.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/iq_block.h"
#include "kernels/quant/iq_grids.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

using Super = IqBlock<32, 4, 1>;

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<IQ3_SBlock>(src, b);
    Super super;
    super.scale = block.scale;
    UnpackBits<4, 1, 8>(block.scales, super.scales);
    UnpackBits<8, 1, 64>(block.low, super.indices);
    UnpackBits<1, 1, 64, 8>(block.high, super.indices);
    std::memcpy(super.signs, block.signs, sizeof(block.signs));
    super.Decode(kIq3SGrid, dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    IQ3_SBlock block;
    Super super;
    super.Encode(kIq3SGrid, src, /*even_signs=*/false);
    block.scale = super.scale;
    PackBits<4, 1, 8>(super.scales, block.scales);
    PackBits<8, 1, 64>(super.indices, block.low);
    PackBits<1, 1, 64, 8>(super.indices, block.high);
    std::memcpy(block.signs, super.signs, sizeof(block.signs));
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kIQ3_SCodec;
const BlockCodec kIQ3_SCodec = {DType::kIQ3_S, Decode, Encode};

}  // namespace inlay
