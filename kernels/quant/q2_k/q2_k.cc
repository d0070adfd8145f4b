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

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q2_KBlock block;
  block.scale = scales.block_scale;
  block.min = scales.block_min;
  for (int j = 0; j < 16; ++j) {
    block.sub[j] =
        static_cast<uint8_t>(scales.sub_scales[j] | scales.sub_mins[j] << 4);
  }
  PackBits<2, 32, 256>(levels, block.codes);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 256,
                             .block_bytes = sizeof(Q2_KBlock),
                             .sub_elements = 16,
                             .least = 0,
                             .most = 3,
                             .is_iq4 = false,
                             .fit = FitAffineSuper<16, 3, 15>,
                             .pack = Pack};

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  EncodeOnGrid(kGrid, src, nullptr, blocks, dst);
}

}  // namespace

extern const BlockCodec kQ2_KCodec;
const BlockCodec kQ2_KCodec = {DType::kQ2_K, Decode, Encode, &kGrid};

}  // namespace inlay
