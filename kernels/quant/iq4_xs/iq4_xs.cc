#include "kernels/quant/iq4_xs/iq4_xs.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/iq4.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/super_block.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<IQ4_XSBlock>(src, b);
    SignedSuperBlock<32> super;
    super.scale = block.scale;
    uint8_t scales[8];
    UnpackBits<4, 1, 8>(block.sub_low, scales);
    UnpackBits<2, 1, 8, 4>(block.sub_high, scales);
    for (int j = 0; j < 8; ++j) {
      super.scales[j] = static_cast<int8_t>(scales[j] - 32);
    }
    uint8_t codes[256];
    UnpackBits<4, 16, 256>(block.codes, codes);
    for (int i = 0; i < 256; ++i) super.levels[i] = kIq4Levels[codes[i]];
    super.Decode(dst);
  }
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  FitSignedSuper<32>(kIq4Rule, -32, x, weights, blocks, scales);
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  IQ4_XSBlock block;
  block.scale = scales.block_scale;
  uint8_t sub[8];
  for (int j = 0; j < 8; ++j) {
    sub[j] = static_cast<uint8_t>(scales.sub_scales[j] + 32);
  }
  PackBits<4, 1, 8>(sub, block.sub_low);
  PackBits<2, 1, 8, 4>(sub, block.sub_high);
  uint8_t codes[256];
  for (int i = 0; i < 256; ++i) {
    codes[i] = static_cast<uint8_t>(Iq4Code(levels[i]));
  }
  PackBits<4, 16, 256>(codes, block.codes);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 256,
                             .block_bytes = sizeof(IQ4_XSBlock),
                             .sub_elements = 32,
                             .least = -127,
                             .most = 113,
                             .is_iq4 = true,
                             .fit = Fit,
                             .pack = Pack};

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  EncodeOnGrid(kGrid, src, nullptr, blocks, dst);
}

}  // namespace

extern const BlockCodec kIQ4_XSCodec;
const BlockCodec kIQ4_XSCodec = {DType::kIQ4_XS, Decode, Encode, &kGrid};

}  // namespace inlay
