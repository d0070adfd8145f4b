// Scales of groups of blocks, against sums by hand.
#include "core/quantize/group_scheme.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/quant/quant.h"

namespace inlay {
namespace {

// Sums by hand: 16 steps of 1 from the largest magnitude, the middle code 0.
TEST(GroupSchemeTest, SymmetricScalesAreTwiceTheLargest) {
  const BlockGrid* grid = FindBlockCodec(DType::kU4_G32)->grid;
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>(i * 7 % 16) - 8) * 0.9375f;
  }
  GridScales scales[2];
  FitGroups({grid, 64, true, DType::kF16}, x.data(), nullptr, 64, scales);
  for (const GridScales& of_block : scales) {
    EXPECT_EQ(of_block.scale[0], 1.0f);
    EXPECT_EQ(of_block.min[0], -8.0f);
  }
  // Whatever the weights: never worse by them than without.
  std::vector<float> weights(64, 0.01f);
  weights[3] = 100.0f;
  GridScales fitted[2];
  FitGroups({grid, 0, true, DType::kF32}, x.data(), weights.data(), 64, fitted);
  const auto error = [&](const GridScales* by) {
    double sum = 0;
    for (int i = 0; i < 64; ++i) {
      const GridScales& of_block = by[i / 32];
      const int level = grid->NearestLevel(of_block, i % 32, x[i]);
      const double off = grid->Value(of_block, i % 32, level) - x[i];
      sum += weights[static_cast<size_t>(i)] * off * off;
    }
    return sum;
  };
  EXPECT_LE(error(fitted), error(scales));
}

// Rows of more elements than a fit looks at in one go.
TEST(GroupSchemeTest, OneScaleForALongRow) {
  const BlockGrid* grid = FindBlockCodec(DType::kI8_G128)->grid;
  std::vector<float> x(1024), weights(1024, 1.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(0.37f * static_cast<float>(i));
  }
  x[1000] = 2.0f;
  for (const float* w : {static_cast<const float*>(nullptr),
                         static_cast<const float*>(weights.data())}) {
    std::vector<std::byte> encoded(8 * sizeof(float) * 34);
    EncodeInGroups({grid, 0, true, DType::kBF16}, x.data(), w, 1024,
                   encoded.data());
    std::vector<float> decoded(1024);
    FindBlockCodec(DType::kI8_G128)->decode(encoded.data(), 8, decoded.data());
    const float scale = BF16ToF32(F32ToBF16(4.0f / 255.0f));
    // Half a step of a scale that the fit may have 4 % wider (fit.h); or 5 %
    // narrower, which cuts off the one value that is twice the others' largest:
    // 6 of its 127 steps.
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(decoded[i], x[i], (i == 1000 ? 6.0f : 0.55f) * scale) << i;
    }
  }
}

}  // namespace
}  // namespace inlay
