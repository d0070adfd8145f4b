#include "kernels/quant/q5_0/q5_0.h"

#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fit.h"
#include "kernels/quant/grid.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 32) {
    const auto block = LoadBlock<Q5_0Block>(src, b);
    const float scale = F16ToF32(block.scale);
    uint8_t codes[32];
    UnpackBits<4, 16, 32>(block.low, codes);
    UnpackBits<1, 1, 32, 4>(block.high, codes);
    for (int i = 0; i < 32; ++i) {
      dst[i] = scale * static_cast<float>(codes[i] - 16);
    }
  }
}

// The element of largest magnitude becomes code 0, which reaches one step
// further than 31.
void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 32) {
    Q5_0Block block;
    block.scale = F32ToF16(Extreme(src, 32) / -16.0f);
    const float inverse = InverseScale(F16ToF32(block.scale));
    uint8_t codes[32];
    for (int i = 0; i < 32; ++i) {
      codes[i] =
          static_cast<uint8_t>(RoundCode(src[i] * inverse + 16.0f, 0, 31));
    }
    PackBits<4, 16, 32>(codes, block.low);
    PackBits<1, 1, 32, 4>(codes, block.high);
    StoreBlock(block, dst, b);
  }
}

void Fit(const float* x, const float* weights, GridScales* scales) {
  const float scale =
      weights == nullptr
          ? Extreme(x, 32) / -16.0f
          : FitScale(x, weights, 32, -16.0f, 0.1f, [](float value) {
              return RoundLevel(value, -16.0f, 15.0f);
            });
  scales->block_scale = F32ToF16(scale);
  scales->scale[0] = F16ToF32(scales->block_scale);
  scales->min[0] = 0.0f;
}

void Pack(const GridScales& scales, const int8_t* levels, std::byte* dst) {
  Q5_0Block block;
  block.scale = scales.block_scale;
  uint8_t codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(levels[i] + 16);
  PackBits<4, 16, 32>(codes, block.low);
  PackBits<1, 1, 32, 4>(codes, block.high);
  StoreBlock(block, dst, 0);
}

constexpr BlockGrid kGrid = {.elements = 32,
                             .block_bytes = sizeof(Q5_0Block),
                             .sub_elements = 32,
                             .least = -16,
                             .most = 15,
                             .is_iq4 = false,
                             .fit = Fit,
                             .pack = Pack};

}  // namespace

extern const BlockCodec kQ5_0Codec;
const BlockCodec kQ5_0Codec = {DType::kQ5_0, Decode, Encode, &kGrid};

}  // namespace inlay
