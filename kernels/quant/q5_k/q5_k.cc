#include "kernels/quant/q5_k/q5_k.h"

#include <cstring>

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

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q5_KBlock block;
  block.scale = scales.block_scale;
  block.min = scales.block_min;
  uint8_t sub_scales[8];
  std::memcpy(sub_scales, scales.sub_scales, sizeof(sub_scales));
  PackKScales(sub_scales, scales.sub_mins, block.sub);
  PackBits<4, 32, 256>(levels, block.low);
  PackBits<1, 32, 256, 4>(levels, block.high);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 256,
                             .block_bytes = sizeof(Q5_KBlock),
                             .sub_elements = 32,
                             .least = 0,
                             .most = 31,
                             .is_iq4 = false,
                             .fit = FitAffineSuper<32, 31, 63>,
                             .pack = Pack};

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  EncodeOnGrid(kGrid, src, nullptr, blocks, dst);
}

}  // namespace

extern const BlockCodec kQ5_KCodec;
const BlockCodec kQ5_KCodec = {DType::kQ5_K, Decode, Encode, &kGrid};

}  // namespace inlay
