#include "kernels/quant/tq1_0/tq1_0.h"

#include "kernels/quant/block.h"
#include "kernels/quant/quant.h"

namespace inlay {
namespace {

// Runs of bytes: `bytes` bytes hold `digits` elements each, `bytes` apart.
struct Run {
  int first_byte;
  int bytes;
  int digits;
  int first_element;
};
constexpr Run kRuns[] = {{0, 32, 5, 0}, {32, 16, 5, 160}, {48, 4, 4, 240}};
constexpr int kPowers[] = {1, 3, 9, 27, 81};

void Decode(const std::byte* src, int64_t blocks, float* dst) {
  for (int64_t b = 0; b < blocks; ++b, dst += 256) {
    const auto block = LoadBlock<TQ1_0Block>(src, b);
    const float scale = F16ToF32(block.scale);
    for (const Run& run : kRuns) {
      for (int n = 0; n < run.digits; ++n) {
        float* values = dst + run.first_element + n * run.bytes;
        for (int i = 0; i < run.bytes; ++i) {
          const int rest =
              (block.digits[run.first_byte + i] * kPowers[n]) & 255;
          values[i] = scale * static_cast<float>((rest * 3 >> 8) - 1);
        }
      }
    }
  }
}

// The largest magnitude is the scale: what has three values keeps them.
void Encode(const float* src, int64_t blocks, std::byte* dst) {
  for (int64_t b = 0; b < blocks; ++b, src += 256) {
    TQ1_0Block block;
    block.scale = F32ToF16(std::abs(Extreme(src, 256)));
    const float inverse = InverseScale(F16ToF32(block.scale));
    for (const Run& run : kRuns) {
      for (int i = 0; i < run.bytes; ++i) {
        int number = 0;
        for (int n = 0; n < run.digits; ++n) {
          const float value = src[run.first_element + n * run.bytes + i];
          number += (RoundCode(value * inverse, -1, 1) + 1) * kPowers[4 - n];
        }
        block.digits[run.first_byte + i] =
            static_cast<uint8_t>((number * 256 + 242) / 243);
      }
    }
    StoreBlock(block, dst, b);
  }
}

}  // namespace

extern const BlockCodec kTQ1_0Codec;
const BlockCodec kTQ1_0Codec = {DType::kTQ1_0, Decode, Encode};

}  // namespace inlay
