// e4m3 with a scale for each block of rows and columns, against a plain loop.
#include "core/quantize/nearest_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/quantize/row_reader.h"
#include "core/quantize/row_writer.h"
#include "kernels/quant/block.h"
#include "kernels/quant/fit.h"
#include "tests/support/memory_weights.h"

namespace inlay {
namespace {

// Fewer of these rows are a band than a block has, and the last block has
// fewer still: a scale is of all its rows all the same.
TEST(NearestRowsTest, BlocksHaveOneScaleWhateverTheBands) {
  constexpr int64_t kBlock = 128, kWidth = 65 * kBlock, kRows = kBlock + 23;
  static_assert(kBandElements / kWidth < kBlock);
  constexpr int64_t kColumns = kWidth / kBlock;
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(kRows * kWidth));
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    // Blocks of unlike sizes, the largest value often in their last rows.
    const int64_t row = i / kWidth;
    const auto cell = static_cast<float>(row / kBlock + i % kWidth / kBlock);
    values[static_cast<size_t>(i)] = normal(rng) * std::exp2(cell * 0.37f) *
                                     static_cast<float>(1 + row % kBlock);
  }
  MemoryWeights source(true);
  source.Add("w", DType::kF32, {kRows, kWidth}, values.data());
  auto pool = ThreadPool::Create(3);
  ASSERT_TRUE(pool.ok());
  auto reader = RowReader::Create(source, *source.Find("w"), GgufLayout::kSame,
                                  {}, **pool);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::byte> got;
  RowWriter writer(
      [&](auto bytes) {
        got.insert(got.end(), bytes.begin(), bytes.end());
        return absl::OkStatus();
      },
      **pool, [](uint64_t) { return true; });
  NearestE4M3 method(DType::kF8_G128, ScaleGrid{kBlock, kBlock}, DType::kBF16,
                     kWidth, **pool);
  RowErrors errors;
  ASSERT_TRUE(
      writer.Write(*reader, DType::kF32, DType::kF8_G128, &method, &errors)
          .ok());
  // A value of normal size is off by 2^-4 of itself at most.
  EXPECT_LT(errors.relative(), 0x1p-4);

  std::vector<float> largest(static_cast<size_t>(2 * kColumns));
  const auto cell_of = [](int64_t i) {
    return static_cast<size_t>(i / kWidth / kBlock * kColumns +
                               i % kWidth / kBlock);
  };
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    float& most = largest[cell_of(i)];
    most = std::max(most, std::abs(values[static_cast<size_t>(i)]));
  }
  std::vector<std::byte> want;
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    const float scale = RoundScale(DType::kBF16, largest[cell_of(i)] / 448.0f);
    if (i % kBlock == 0) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&scale);
      want.insert(want.end(), bytes, bytes + sizeof(scale));
    }
    const float code = values[static_cast<size_t>(i)] * InverseScale(scale);
    want.push_back(std::byte{F32ToF8E4M3(std::clamp(code, -448.0f, 448.0f))});
  }
  ASSERT_EQ(got.size(), want.size());
  EXPECT_TRUE(got == want);
}

}  // namespace
}  // namespace inlay
