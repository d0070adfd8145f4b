// xielu's CPU rows against float64.
#include "tests/kernels/xielu_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::kXieluNumbers;
using ::inlay::testing::SetXieluEdges;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;
using ::inlay::testing::XieluReference;
using ::inlay::testing::XieluTolerance;

TEST(XieluTest, MatchesFloat64) {
  TestCpu cpu(2);
  for (const XieluNumbers& numbers : kXieluNumbers) {
    for (const int64_t width : {1, 7, 8, 40, 101, 2056}) {
      SCOPED_TRACE(::testing::Message() << numbers.eps << " width " << width);
      const XieluDesc desc{width, DType::kF32};
      std::mt19937 rng(9);
      TestMatrix x(DType::kF32, 4, width, 3);
      x.Randomize(rng, 2.0f);
      SetXieluEdges(&x);
      const auto want = [&](int64_t r, int64_t c) {
        return XieluReference(numbers, x(r, c));
      };
      const auto tolerance = [&](int64_t r, int64_t c) {
        return XieluTolerance(numbers, x(r, c));
      };
      ForEachCpuRow(XieluTable(), desc, cpu, [&](const XieluRow& row) {
        TestMatrix y(DType::kF32, 4, width, 1);
        XieluParams params{x.view(), y.view(), numbers};
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        ExpectClose(y, want, tolerance);
        TestMatrix in_place = x;
        params.x = params.y = in_place.view();
        ASSERT_TRUE(row.run(desc, params, *cpu.stream).ok());
        for (int64_t r = 0; r < 4; ++r) {
          EXPECT_EQ(in_place.RowBits(r), y.RowBits(r));
        }
      });
    }
  }
}

TEST(XieluTest, NanStaysNan) {
  TestCpu cpu(1);
  const XieluDesc desc{9, DType::kF32};
  TestMatrix x(DType::kF32, 1, 9);
  SetXieluEdges(&x);
  x.Set(0, 7, 1.0f);
  for (const int64_t c : {2, 8}) {
    x.Set(0, c, std::numeric_limits<float>::quiet_NaN());
  }
  for (const XieluNumbers& numbers : kXieluNumbers) {
    ForEachCpuRow(XieluTable(), desc, cpu, [&](const XieluRow& row) {
      TestMatrix y(DType::kF32, 1, 9);
      ASSERT_TRUE(
          row.run(desc, {x.view(), y.view(), numbers}, *cpu.stream).ok());
      for (int64_t c = 0; c < 9; ++c) {
        EXPECT_EQ(std::isnan(y(0, c)), c == 2 || c == 8) << c;
      }
    });
  }
}

TEST(XieluTest, OtherTypesAreRefused) {
  TestCpu cpu(1);
  EXPECT_FALSE(Select("xielu", XieluTable(), XieluDesc{8, DType::kBF16},
                      cpu.device->info())
                   .ok());
}

}  // namespace
}  // namespace inlay
