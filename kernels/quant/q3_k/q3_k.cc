#include "kernels/quant/q3_k/q3_k.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/super_block.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<Q3_KBlock>(src, b);
    SignedSuperBlock<16> super;
    super.scale = block.scale;
    uint8_t scales[16];
    UnpackBits<4, 8, 16>(block.sub_low, scales);
    UnpackBits<2, 4, 16, 4>(block.sub_high, scales);
    for (int j = 0; j < 16; ++j) {
      super.scales[j] = static_cast<int8_t>(scales[j] - 32);
    }
    uint8_t codes[256];
    UnpackBits<2, 32, 256>(block.low, codes);
    UnpackBits<1, 32, 256, 2>(block.high, codes);
    for (int i = 0; i < 256; ++i) {
      super.levels[i] = static_cast<int8_t>(codes[i] - 4);
    }
    super.Decode(dst);
  }
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  constexpr ScaleRule kRule = {
      .first = -4.0f, .step = 0.1f, .least = -4.0f, .most = 3.0f};
  FitSignedSuper<16>(kRule, -32, x, weights, blocks, scales);
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q3_KBlock block;
  block.scale = scales.block_scale;
  uint8_t sub[16];
  for (int j = 0; j < 16; ++j) {
    sub[j] = static_cast<uint8_t>(scales.sub_scales[j] + 32);
  }
  PackBits<4, 8, 16>(sub, block.sub_low);
  PackBits<2, 4, 16, 4>(sub, block.sub_high);
  uint8_t codes[256];
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(levels[i] + 4);
  PackBits<2, 32, 256>(codes, block.low);
  PackBits<1, 32, 256, 2>(codes, block.high);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 256,
                             .block_bytes = sizeof(Q3_KBlock),
                             .sub_elements = 16,
                             .least = -4,
                             .most = 3,
                             .is_iq4 = false,
                             .fit = Fit,
                             .pack = Pack};

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  EncodeOnGrid(kGrid, src, nullptr, blocks, dst);
}

}  // namespace

extern const BlockCodec kQ3_KCodec;
const BlockCodec kQ3_KCodec = {DType::kQ3_K, Decode, Encode, &kGrid};

}  // namespace inlay
