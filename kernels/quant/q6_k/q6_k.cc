#include "kernels/quant/q6_k/q6_k.h"

#include <cstring>

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/super_block.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<Q6_KBlock>(src, b);
    SignedSuperBlock<16> super;
    super.scale = block.scale;
    std::memcpy(super.scales, block.sub, sizeof(block.sub));
    uint8_t codes[256];
    UnpackBits<4, 64, 256>(block.low, codes);
    UnpackBits<2, 32, 256, 4>(block.high, codes);
    for (int i = 0; i < 256; ++i) {
      super.levels[i] = static_cast<int8_t>(codes[i] - 32);
    }
    super.Decode(dst);
  }
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  constexpr ScaleRule kRule = {
      .first = -32.0f, .step = 0.1f, .least = -32.0f, .most = 31.0f};
  FitSignedSuper<16>(kRule, -128, x, weights, blocks, scales);
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q6_KBlock block;
  block.scale = scales.block_scale;
  std::memcpy(block.sub, scales.sub_scales, sizeof(block.sub));
  uint8_t codes[256];
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(levels[i] + 32);
  PackBits<4, 64, 256>(codes, block.low);
  PackBits<2, 32, 256, 4>(codes, block.high);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 256,
                             .block_bytes = sizeof(Q6_KBlock),
                             .sub_elements = 16,
                             .least = -32,
                             .most = 31,
                             .is_iq4 = false,
                             .fit = Fit,
                             .pack = Pack};

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  EncodeOnGrid(kGrid, src, nullptr, blocks, dst);
}

}  // namespace

extern const BlockCodec kQ6_KCodec;
const BlockCodec kQ6_KCodec = {DType::kQ6_K, Decode, Encode, &kGrid};

}  // namespace inlay
