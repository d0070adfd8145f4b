#include "kernels/quant/q4_k/q4_k.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/k_scales.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/super_block.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<Q4_KBlock>(src, b);
    AffineSuperBlock<32> super;
    super.scale = block.scale;
    super.min = block.min;
    UnpackKScales(block.sub, super.scales, super.mins);
    UnpackBits<4, 32, 256>(block.codes, super.codes);
    super.Decode(dst);
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    Q4_KBlock block;
    AffineSuperBlock<32> super;
    super.Encode(src, 15, 63);
    block.scale = super.scale;
    block.min = super.min;
    PackKScales(super.scales, super.mins, block.sub);
    PackBits<4, 32, 256>(super.codes, block.codes);
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kQ4_KCodec;
const BlockCodec kQ4_KCodec = {DType::kQ4_K, Decode, Encode};

}  // namespace inlay
