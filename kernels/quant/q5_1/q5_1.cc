#include "kernels/quant/q5_1/q5_1.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fit_groups.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/nearest_levels.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 32) {
    const auto block = LoadBlock<Q5_1Block>(src, b);
    const float scale = F16ToF32(block.scale);
    const float min = F16ToF32(block.min);
    uint8_t codes[32];
    UnpackBits<4, 16, 32>(block.low, codes);
    UnpackBits<1, 1, 32, 4>(block.high, codes);
    for (int i = 0; i < 32; ++i) {
      dst[i] = scale * static_cast<float>(codes[i]) + min;
    }
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  const auto set = [](const Range& range, Q5_1Block& block) -> CodeScale {
    block.scale = F32ToF16(range.most / 31.0f - range.least / 31.0f);
    block.min = F32ToF16(range.least);
    return {InverseScale(F16ToF32(block.scale)), F16ToF32(block.min)};
  };
  const auto pack = [](const int8_t* codes, Q5_1Block& block) {
    PackBits<4, 16, 32>(codes, block.low);
    PackBits<1, 1, 32, 4>(codes, block.high);
  };
  EncodePlainBlocks<Q5_1Block, Range>({0.0f, 0.0f, 31.0f}, FindRanges, set,
                                      pack, src, blocks, dst);
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  FitAffineBlocks(31, x, weights, blocks, scales);
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q5_1Block block;
  block.scale = scales.block_scale;
  block.min = scales.block_min;
  PackBits<4, 16, 32>(levels, block.low);
  PackBits<1, 1, 32, 4>(levels, block.high);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 32,
                             .block_bytes = sizeof(Q5_1Block),
                             .sub_elements = 32,
                             .least = 0,
                             .most = 31,
                             .is_iq4 = false,
                             .fit = Fit,
                             .pack = Pack};

}  // namespace

extern const BlockCodec kQ5_1Codec;
const BlockCodec kQ5_1Codec = {DType::kQ5_1, Decode, Encode, &kGrid};

}  // namespace inlay
