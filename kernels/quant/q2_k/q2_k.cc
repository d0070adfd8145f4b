#include "kernels/quant/q2_k/q2_k.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/super_block.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<Q2_KBlock>(src, b);
    AffineSuperBlock<16> super;
    super.scale = block.scale;
    super.min = block.min;
    for (int j = 0; j < 16; ++j) {
      super.scales[j] = block.sub[j] & 15;
      super.mins[j] = block.sub[j] >> 4;
    }
    UnpackBits<2, 32, 256>(block.codes, super.codes);
    super.Decode(dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    Q2_KBlock block;
    AffineSuperBlock<16> super;
    super.Encode(src, 3, 15);
    block.scale = super.scale;
    block.min = super.min;
    for (int j = 0; j < 16; ++j) {
      block.sub[j] = static_cast<uint8_t>(super.scales[j] | super.mins[j] << 4);
    }
    PackBits<2, 32, 256>(super.codes, block.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kQ2_KCodec;
const BlockCodec kQ2_KCodec = {DType::kQ2_K, Decode, Encode};

}  // namespace inlay
