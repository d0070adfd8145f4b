#include "kernels/quant/q4_1/q4_1.h"

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
    const auto block = LoadBlock<Q4_1Block>(src, b);
    const float scale = F16ToF32(block.scale);
    const float min = F16ToF32(block.min);
    uint8_t codes[32];
    UnpackBits<4, 16, 32>(block.codes, codes);
    for (int i = 0; i < 32; ++i) {
      dst[i] = scale * static_cast<float>(codes[i]) + min;
    }
  }
}

void Encode(const float* src, int64_t blocks, std::byte* dst) {
  const auto set = [](const Range& range, Q4_1Block& block) -> CodeScale {
    block.scale = F32ToF16(range.most / 15.0f - range.least / 15.0f);
    block.min = F32ToF16(range.least);
    return {InverseScale(F16ToF32(block.scale)), F16ToF32(block.min)};
  };
  const auto pack = [](const int8_t* codes, Q4_1Block& block) {
    PackBits<4, 16, 32>(codes, block.codes);
  };
  EncodePlainBlocks<Q4_1Block, Range>({0.0f, 0.0f, 15.0f}, FindRanges, set,
                                      pack, src, blocks, dst);
}

void Fit(const float* x, const float* weights, int64_t blocks,
         GridScales* scales) {
  FitAffineBlocks(15, x, weights, blocks, scales);
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q4_1Block block;
  block.scale = scales.block_scale;
  block.min = scales.block_min;
  PackBits<4, 16, 32>(levels, block.codes);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 32,
                             .block_bytes = sizeof(Q4_1Block),
                             .sub_elements = 32,
                             .least = 0,
                             .most = 15,
                             .is_iq4 = false,
                             .fit = Fit,
                             .pack = Pack};

}  // namespace

extern const BlockCodec kQ4_1Codec;
const BlockCodec kQ4_1Codec = {DType::kQ4_1, Decode, Encode, &kGrid};

}  // namespace inlay
