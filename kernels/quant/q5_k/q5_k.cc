#include "kernels/quant/q5_k/q5_k.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/k_scales.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/super_block.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<Q5_KBlock>(src, b);
    AffineSuperBlock<32> super;
    super.scale = block.scale;
    super.min = block.min;
    UnpackKScales(block.sub, super.scales, super.mins);
    UnpackBits<4, 32, 256>(block.low, super.codes);
    UnpackBits<1, 32, 256, 4>(block.high, super.codes);
    super.Decode(dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    Q5_KBlock block;
    AffineSuperBlock<32> super;
    super.Encode(src, 31, 63);
    block.scale = super.scale;
    block.min = super.min;
    PackKScales(super.scales, super.mins, block.sub);
    PackBits<4, 32, 256>(super.codes, block.low);
    PackBits<1, 32, 256, 4>(super.codes, block.high);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kQ5_KCodec;
const BlockCodec kQ5_KCodec = {DType::kQ5_K, Decode, Encode};

}  // namespace inlay
