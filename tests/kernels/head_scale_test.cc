// head_scale's CPU rows against float64, and that a token depends on itself
// alone.
#include "tests/kernels/head_scale_test.h"

#include <gtest/gtest.h>

namespace inlay {
namespace {

using ::inlay::testing::ExpectClose;
using ::inlay::testing::ForEachCpuRow;
using ::inlay::testing::HeadScaleProblem;
using ::inlay::testing::TestCpu;
using ::inlay::testing::TestMatrix;

TEST(HeadScaleTest, MatchesFloat64) {
  TestCpu cpu(2), one(1);
  for (const int heads : {1, 3, 8}) {
    for (const int head_dim : {1, 7, 64}) {
      SCOPED_TRACE(::testing::Message() << heads << " heads of " << head_dim);
      const HeadScaleProblem problem(heads, head_dim, DType::kF32, heads % 3);
      ForEachCpuRow(
          HeadScaleTable(), problem.desc, cpu, [&](const HeadScaleRow& row) {
            TestMatrix x = problem.x;
            HeadScaleParams params = {x.view(), problem.positions.data(),
                                      problem.scale.data(),
                                      problem.bias.data()};
            ASSERT_TRUE(row.run(problem.desc, params, *cpu.stream).ok());
            ExpectClose(
                x, [&](int64_t r, int64_t c) { return problem.Want(r, c); },
                [&](int64_t r, int64_t c) { return problem.Tolerance(r, c); });
            EXPECT_TRUE(x.PaddingIsPoisoned());
            TestMatrix alone = problem.x;
            params.x = alone.view().RowSlice(4, 1);
            params.positions += 4;
            ASSERT_TRUE(row.run(problem.desc, params, *one.stream).ok());
            EXPECT_EQ(alone.RowBits(4), x.RowBits(4));
            EXPECT_EQ(alone.RowBits(3), TestMatrix(problem.x).RowBits(3));
          });
    }
  }
}

TEST(HeadScaleTest, OtherTypesAreRefused) {
  TestCpu cpu(1);
  EXPECT_FALSE(Select("head_scale", HeadScaleTable(),
                      HeadScaleDesc{2, 8, DType::kF16}, cpu.device->info())
                   .ok());
}

}  // namespace
}  // namespace inlay
